"""What is known since the link or the computing last changed, and how a change shows."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from trainingkit.sync.auto.forecast import Link
from trainingkit.sync.auto.seen import Seen

SAMPLES = 4
"""Steps that tell what a rung takes."""
RECENT = 9
DRIFT = 1.5
DRIFT_STEPS = 3
"""So many steps in a row that differ by so much are a change."""
HURTS = 0.15


@dataclass
class Epoch:
    """Steps and figures that belong together. A step that does not fit is kept apart: a reference that follows a change
    would never see it.

    Args:
        samples: steps on the present rung, the newest `RECENT`.
        measured: seconds of a step by rung, once tried.
        tries: rungs that were moved to for a measurement.
        settled: the search is over.
        odd: steps in a row that do not fit what the rung showed.
    """

    samples: list[Seen] = field(default_factory=list)
    measured: dict[int, float] = field(default_factory=dict)
    tries: int = 0
    settled: bool = False
    odd: list[Seen] = field(default_factory=list)

    def take(self, seen: Seen) -> bool:
        """Put a step where it belongs. Returns whether it is odd."""
        if self._is_odd(seen):
            self.odd = [*self.odd, seen][-RECENT:]
            return True
        self.odd = []
        self.samples = [*self.samples, seen][-RECENT:]
        return False

    @property
    def has_changed(self) -> bool:
        """Whether there are enough odd steps to believe in a change."""
        return len(self.odd) >= DRIFT_STEPS

    @property
    def hurts(self) -> bool:
        """Whether the odd steps are longer than those before."""
        return median(self.odd, _step_s) > median(self.samples, _step_s) * (1.0 + HURTS)

    def changed(self) -> str:
        """What the odd steps say, as a clause."""
        rate, new_rate = median(self.samples, _rate), median(self.odd, _rate)
        if _apart(new_rate, rate):
            return f"the link went from {mbit(rate)} to {mbit(new_rate)}"
        window_s, new_s = median(self.samples, _window_s), median(self.odd, _window_s)
        return f"computing went from {window_s:.3g} to {new_s:.3g} s a step"

    def step_s(self) -> float:
        """Seconds of a step on the present rung."""
        return median(self.samples, _step_s)

    def link(self) -> Link | None:
        """As the samples show it; None without any."""
        if not self.samples:
            return None
        return Link(median(self.samples, _rate), max(0.0, median(self.samples, lambda seen: seen.latency_s)))

    def _is_odd(self, seen: Seen) -> bool:
        if len(self.samples) < SAMPLES:
            return False
        rate, window_s = median(self.samples, _rate), median(self.samples, _window_s)
        return _apart(seen.rate, rate) or _apart(seen.window_s, window_s)


def median(samples: Sequence[Seen], figure: Callable[[Seen], float]) -> float:
    """Of one figure over some steps."""
    return float(statistics.median(figure(seen) for seen in samples))


def mbit(bytes_per_s: float) -> str:
    """For people: in Mbit/s, or in Gbit/s.

    >>> mbit(12.5e6), mbit(5.8e9)
    ('100 Mbit/s', '46.4 Gbit/s')
    """
    rate = bytes_per_s * 8e-6
    return f"{rate:.3g} Mbit/s" if rate < 1000 else f"{rate / 1000:.3g} Gbit/s"


def _step_s(seen: Seen) -> float:
    return seen.step_s


def _rate(seen: Seen) -> float:
    return seen.rate


def _window_s(seen: Seen) -> float:
    return seen.window_s


def _apart(one: float, other: float) -> bool:
    """Whether two positive figures differ by more than `DRIFT`."""
    return one > DRIFT * other or other > DRIFT * one

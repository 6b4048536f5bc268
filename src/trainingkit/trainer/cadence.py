"""When a snapshot is due. By steps every rank knows it; by the clock rank 0 decides, and the control lane tells all.

every = 50       each 50th step
every = "30s"    as soon as 30 seconds are over
every = "auto"   as soon as the time is over that loses least (`recovery.interval`), from what snapshots have cost
                 so far: the copies, and by how much steps were slower while one was written
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from trainingkit.core.units import format_seconds, parse_seconds
from trainingkit.recovery.interval import best_interval_s

ASKED = 2
"""What a rank tells the others each step on the control lane: it wants to stop, it wants to save."""
AUTO = "auto"
FIRST_S = 30.0
"""Until a snapshot's cost is known."""
LEAST_COST_S = 1e-3
CHANGE = 0.2
"""A change of the interval by less than this share is not told."""
MEMORY = 0.9
"""How much of the usual step time stays from step to step."""


class Cadence(Protocol):
    """Says after which steps to save; all ranks ask alike."""

    def wants(self) -> bool:
        """Whether this rank would like a snapshot after the step that is under way; asked before each exchange."""
        ...

    def due(self, step: int, *, agreed: bool) -> bool:
        """Whether a snapshot is due after this step; `agreed`: some rank wanted one."""
        ...

    def stepped(self, step_s: float, *, writing: bool) -> None:
        """A step took so long, and whether a snapshot was written meanwhile."""
        ...

    def saved(self, copies_s: float) -> None:
        """A snapshot was begun, and its copies took so long."""
        ...


class BySteps:
    """Each so many steps; 0: never."""

    def __init__(self, every: int) -> None:
        self._every = every

    def wants(self) -> bool:
        """Nobody needs to ask."""
        return False

    def due(self, step: int, *, agreed: bool) -> bool:
        """By the number of the step."""
        return self._every > 0 and step % self._every == 0

    def stepped(self, step_s: float, *, writing: bool) -> None:
        """Of no account."""

    def saved(self, copies_s: float) -> None:
        """Of no account."""


class ByClock:
    """Each so many seconds of the clock of rank 0.

    Args:
        decides: whether this is the rank whose clock counts.
    """

    def __init__(self, interval_s: float, *, decides: bool, now: Callable[[], float] = time.monotonic) -> None:
        self.interval_s = interval_s
        self._decides = decides
        self._now = now
        self._since_s = now()
        self._asked = False

    def wants(self) -> bool:
        """The time is over, and the step before was not asked: ranks that train apart hear of it one step late."""
        over = self._decides and self._now() - self._since_s >= self.interval_s
        self._asked = over and not self._asked
        return self._asked

    def due(self, step: int, *, agreed: bool) -> bool:
        """As rank 0 said."""
        return agreed

    def stepped(self, step_s: float, *, writing: bool) -> None:
        """Of no account."""

    def saved(self, copies_s: float) -> None:
        """The time begins anew."""
        self._since_s = self._now()
        self._asked = False


@dataclass
class Cost:
    """What the snapshot that was begun last has cost so far, in seconds of training, and how long a step is usually."""

    seconds: float = 0.0
    usual_s: float | None = None

    def stepped(self, step_s: float, *, writing: bool) -> None:
        """Steps in quiet tell what is usual; those beside a writer what it takes."""
        if not writing:
            self.usual_s = step_s if self.usual_s is None else MEMORY * self.usual_s + (1.0 - MEMORY) * step_s
        elif self.usual_s is not None:
            self.seconds += step_s - self.usual_s


class Learned(ByClock):
    """As `ByClock`, with an interval that follows from what snapshots cost.

    Args:
        between_failures_s: mean seconds between two failures of the job.
        tell: told on the deciding rank (interval in seconds, reason) when the interval has changed.
    """

    def __init__(
        self,
        between_failures_s: float,
        *,
        decides: bool,
        tell: Callable[[float, str], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(FIRST_S, decides=decides, now=now)
        self._between_failures_s = between_failures_s
        self._tell = tell
        self._cost = Cost()
        self._least_s = 0.0
        self._open = False
        self._told_s = 0.0

    def wants(self) -> bool:
        """The time is over, and nothing is being written."""
        return not self._open and super().wants()

    def stepped(self, step_s: float, *, writing: bool) -> None:
        """When a writer has ended, its cost is known."""
        self._cost.stepped(step_s, writing=writing)
        if self._open and not writing:
            self._open = False
            self._learn()

    def saved(self, copies_s: float) -> None:
        """A snapshot is being written from now on."""
        super().saved(copies_s)
        self._cost = Cost(copies_s, self._cost.usual_s)
        self._least_s, self._open = copies_s, True

    def _learn(self) -> None:
        cost_s = max(self._cost.seconds, self._least_s, LEAST_COST_S)
        self.interval_s = best_interval_s(cost_s, self._between_failures_s)
        if self._decides and abs(self.interval_s - self._told_s) > CHANGE * self._told_s:
            self._told_s = self.interval_s
            failures = format_seconds(self._between_failures_s)
            reason = f"one costs {format_seconds(cost_s)} of training, and a failure is expected every {failures}"
            self._tell(self.interval_s, reason)


def make_cadence(
    every: int | str, *, between_failures_s: Callable[[], float], decides: bool, tell: Callable[[float, str], None]
) -> Cadence:
    """The cadence that `snapshot.every` asks for.

    Args:
        between_failures_s: asked where it counts.
    """
    if isinstance(every, int):
        return BySteps(every)
    if every == AUTO:
        return Learned(between_failures_s(), decides=decides, tell=tell)
    return ByClock(parse_seconds(every, field="snapshot.every"), decides=decides)

"""What the ranks saw of one step, as numbers that travel, and as one agreed picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields

from trainingkit.core.plainsum import plain_sum
from trainingkit.sync.auto.forecast import Link

UNKNOWN = -1.0
"""Of what a rank could not measure. All figures are positive or zero otherwise."""


@dataclass(frozen=True)
class Seen:
    """One rank's view of one step; seconds, bytes per second, or shares. `UNKNOWN` where there is none.

    Args:
        window_s: from forward's begin to the last gradient.
        hide_s: from the first bucket's gradient to the last.
        exposed_s: from the last gradient until all buckets were back.
        code_s: encoding and decoding, hidden or not.
        rate: bytes per second that the link gave.
        latency_s: of one collective.
        loss: of the step's own samples.
        cosine: between what a message was to say and what it says; the least over the samples taken.
        kept: share of the energy (sum of squares) that the message says.
        committed: 1.0 where the step was taken.
    """

    window_s: float = UNKNOWN
    hide_s: float = UNKNOWN
    exposed_s: float = UNKNOWN
    code_s: float = UNKNOWN
    rate: float = UNKNOWN
    latency_s: float = UNKNOWN
    loss: float = UNKNOWN
    cosine: float = UNKNOWN
    kept: float = UNKNOWN
    committed: float = 1.0

    def row(self) -> list[float]:
        """As numbers in a fixed order."""
        return list(astuple(self))

    @staticmethod
    def width() -> int:
        """Numbers of a row."""
        return len(fields(Seen))

    @property
    def step_s(self) -> float:
        """From forward's begin until the gradients are agreed."""
        return self.window_s + self.exposed_s

    @property
    def link(self) -> Link | None:
        """None where nobody measured it."""
        return Link(self.rate, max(0.0, self.latency_s)) if self.rate > 0 else None


def agreed(rows: Sequence[Sequence[float]]) -> Seen:
    """One picture of all ranks' rows, the same wherever it is made: only sums in rank order, products, comparisons.

    The slowest rank's step counts, the mean loss, the worst message. Of the link the highest rate and the least
    latency: a collective takes all ranks as long as the slowest link, and those that wait for a late peer longer. Only
    who came last saw the wire alone.
    """
    views = [Seen(*row) for row in rows]
    slowest = max(views, key=lambda view: view.step_s)
    losses = [view.loss for view in views if view.loss != UNKNOWN]
    return Seen(
        window_s=slowest.window_s,
        hide_s=_mean([view.hide_s for view in views if view.hide_s != UNKNOWN]),
        exposed_s=slowest.exposed_s,
        code_s=_mean([view.code_s for view in views if view.code_s != UNKNOWN]),
        rate=max((view.rate for view in views if view.rate > 0), default=UNKNOWN),
        latency_s=min((view.latency_s for view in views if view.latency_s != UNKNOWN), default=UNKNOWN),
        loss=_mean(losses),
        cosine=min((view.cosine for view in views if view.cosine != UNKNOWN), default=UNKNOWN),
        kept=min((view.kept for view in views if view.kept != UNKNOWN), default=UNKNOWN),
        committed=min(view.committed for view in views),
    )


def _mean(values: Sequence[float]) -> float:
    return plain_sum(values) / len(values) if values else UNKNOWN

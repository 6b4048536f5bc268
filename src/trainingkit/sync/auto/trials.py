"""Which rung is worth some steps, because only a measurement can tell whether it is as good as the best?

Pure, and of sums, products and comparisons only, so that every rank comes to the same answer.
"""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from dataclasses import dataclass

from trainingkit.sync.auto.forecast import Forecast
from trainingkit.sync.auto.ladder import PLAIN, Rung

SLACK = 0.02
"""A rung hides when its step is at most this much longer than the shortest."""
WORTH_A_TRY = 0.15
"""A less lossy rung whose forecast is at most this much above the best is measured before it is given up."""
PLAIN_WORTH_A_TRY = 0.35
"""The same for plain DDP: a codec may slow computing down in ways that no figure of the step shows."""


@dataclass(frozen=True)
class Known:
    """What is known of a ladder's rungs.

    Args:
        index: of the present rung.
        times: seconds of a step by rung; None: not to be used.
        measured: rungs that were measured.
    """

    ladder: Sequence[Rung]
    index: int
    times: Sequence[float | None]
    measured: Container[int]


def to_try(known: Known, target: int) -> int:
    """The least lossy rung not measured yet that may be as good as the target; else the target.

    Only one that is shorter than all that lose less; and nobody goes back to gradients for a try.
    """
    best = min(seconds for seconds in known.times if seconds is not None)
    shortest = math.inf
    for index, seconds in enumerate(known.times[: target + 1]):
        if seconds is None:
            continue
        rung = known.ladder[index]
        worth = PLAIN_WORTH_A_TRY if rung.codec == PLAIN else WORTH_A_TRY
        gains = seconds * (1.0 + SLACK) <= shortest and (rung.apart or not known.ladder[known.index].apart)
        shortest = min(shortest, seconds)
        if gains and index not in known.measured and seconds <= best * (1.0 + worth):
            return index
    return target


def apart_to_try(known: Known, target: int, forecasts: Sequence[Forecast]) -> int:
    """A rung apart that is measured before it is given up, where a person asked for them; else the target.

    The first is the least lossy that hides, where it may be as good as the target. After it each that is forecast to be
    shorter, for forecasts of rungs that nobody has measured know too little of what bytes cost.
    """
    allowed = [index for index, rung in enumerate(known.ladder) if rung.apart and known.times[index] is not None]
    new = [index for index in allowed if index not in known.measured]
    if not new:
        return target
    step_s = forecasts[target].step_s
    if len(new) < len(allowed):
        return next((index for index in new if forecasts[index].step_s < step_s and index > target), target)
    best_s = min(forecasts[index].step_s for index in new)
    if best_s > step_s * (1.0 + WORTH_A_TRY):
        return target
    return next(index for index in new if forecasts[index].step_s <= best_s * (1.0 + SLACK))

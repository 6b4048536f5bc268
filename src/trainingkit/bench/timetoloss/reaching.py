"""After how many steps had a contender the target loss? One rule for everybody, the baseline too. From curves. Pure.

The rule: the first point at or below the target, on straight lines between evaluations, of the shortest run length of
which every seed has such a point; rounded up to a whole exchange, before which there is no agreed model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from trainingkit.bench.timetoloss.catalogue import BASELINE, entry_of
from trainingkit.bench.timetoloss.curve import Curve, Find
from trainingkit.bench.timetoloss.plan import curve_at, length_of, target_of
from trainingkit.bench.timetoloss.spec import TimeToLossSpec, period_of

NEVER = 0.0
"""Steps of a reference / steps of who never reaches the target."""
SLACK = 1e-9
"""Of a step, in which two computations of the same crossing may differ."""


@dataclass(frozen=True)
class Reach:
    """What a contender's run with one seed shows.

    Args:
        steps: until the target; where it is never reached, the run's length.
        curve: the run.
    """

    steps: float
    reached: bool
    curve: Curve


def steps_to(losses: Sequence[Sequence[float]], target: float) -> float | None:
    """The first step with a loss of at most `target`, on a straight line between two evaluations; None: never.

    >>> steps_to([[0, 5.0], [10, 3.0], [20, 2.0]], 2.5), steps_to([[0, 5.0], [10, 3.0]], 2.5)
    (15.0, None)
    """
    before: Sequence[float] | None = None
    for step, loss in losses:
        if loss <= target:
            if before is None:
                return float(step)
            share = (before[1] - target) / (before[1] - loss)
            return before[0] + share * (step - before[0])
        before = (step, loss)
    return None


def whole_rounds(steps: float, period: int) -> int:
    """The next end of an exchange; the first one at the earliest.

    >>> whole_rounds(9.2, 4), whole_rounds(8.0, 4), whole_rounds(9.2, 1), whole_rounds(0.0, 4)
    (12, 8, 10, 4)
    """
    return period * max(1, math.ceil((steps - SLACK) / period))


def reach(spec: TimeToLossSpec, name: str, seed: int, find: Find) -> Reach | None:
    """Steps to the target with one seed; None where a curve is missing.

    The target is the mean of the baseline's ends. A seed of it that ends above has reached it at its end: this can
    only make the baseline faster. Who exchanges nothing has the losses of the dense contender.
    """
    dense = entry_of(name).trained_as
    target, length = target_of(spec, find), length_of(spec, dense, find)
    curve = None if length is None else curve_at(spec, dense, length, seed, find)
    if target is None or curve is None:
        return None
    steps = steps_to(curve.losses, target)
    if steps is None:
        return Reach(float(curve.spec.steps), dense == BASELINE, curve)
    return Reach(float(min(curve.spec.steps, whole_rounds(steps, period_of(dense)))), True, curve)


def reaches(spec: TimeToLossSpec, name: str, find: Find) -> list[Reach]:
    """Of every seed that has run."""
    found = [reach(spec, name, seed, find) for seed in spec.seeds_of(entry_of(name).trained_as)]
    return [each for each in found if each is not None]


def step_ratios(spec: TimeToLossSpec, name: str, reference: str, find: Find) -> list[float]:
    """Steps of the reference / steps of the contender, of each seed that has run, paired by seed.

    A seed that never reaches the target has `NEVER`. A reference that never does stands with the length of its run,
    which is too few steps; one that has one seed only stands with its first.
    """
    ratios = []
    for seed in spec.seeds_of(entry_of(name).trained_as):
        own = reach(spec, name, seed, find)
        other = reach(spec, reference, seed, find) or reach(spec, reference, 0, find)
        if own is not None and other is not None:
            ratios.append(other.steps / own.steps if own.reached else NEVER)
    return ratios

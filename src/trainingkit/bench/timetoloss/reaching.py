"""After how many steps had a contender the target loss? From kept curves. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainingkit.bench.timetoloss.catalogue import BASELINE, DENSE_OF
from trainingkit.bench.timetoloss.curve import Curve
from trainingkit.bench.timetoloss.plan import Find, curves_of, target_of
from trainingkit.bench.timetoloss.spec import TimeToLossSpec


@dataclass(frozen=True)
class Reach:
    """What a contender's runs with one seed show.

    Args:
        steps: until the target; where it is never reached, the length of the longest run.
        curve: the run of the fewest steps, or the longest run.
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


def reach(spec: TimeToLossSpec, name: str, seed: int, find: Find) -> Reach | None:
    """The fewest steps to the target of the seed; None where a curve is missing.

    The baseline's own are its length. Who exchanges nothing has the losses of the dense contender.
    """
    target = target_of(spec, seed, find)
    curves = curves_of(spec, DENSE_OF.get(name, name), seed, find)
    if target is None or not curves:
        return None
    if DENSE_OF.get(name, name) == BASELINE:
        return Reach(float(spec.steps), True, curves[-1])
    found = [(steps, curve) for curve in curves if (steps := steps_to(curve.losses, target)) is not None]
    if not found:
        return Reach(float(curves[-1].spec.steps), False, curves[-1])
    steps, curve = min(found, key=lambda pair: pair[0])
    return Reach(steps, True, curve)


def step_ratios(spec: TimeToLossSpec, name: str, reference: str, find: Find) -> list[float]:
    """Steps of the reference / steps of the contender, of each seed for which both are known, paired by seed.

    A reference that has one seed only stands with the steps of its first.
    """
    ratios = []
    for seed in range(spec.seeds):
        own = reach(spec, name, seed, find)
        other = reach(spec, reference, seed, find) or reach(spec, reference, 0, find)
        if own is not None and own.reached and other is not None:
            ratios.append(other.steps / own.steps)
    return ratios

"""Which curves are still to be run? From those that are there: the sweep first, then the shortest length that reaches.

A contender may train as long as it likes; what counts is the least length of which every seed has the target loss.
That length is searched among a few with the first seed, by halves; then the other seeds run at it, and where one of
them misses the target, the search goes on upwards. Pure.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

from trainingkit.bench.timetoloss.catalogue import BASELINE, BF16
from trainingkit.bench.timetoloss.curve import Curve, CurveSpec, Find
from trainingkit.bench.timetoloss.rates import rate_of, sweep_of
from trainingkit.bench.timetoloss.spec import TimeToLossSpec, optimizer_of


def claimed(spec: TimeToLossSpec) -> tuple[str, ...]:
    """Whom the checks compare: the baseline, the judged contender, the bf16 wire."""
    return tuple(dict.fromkeys((BASELINE, spec.winner, BF16)))


def target_of(spec: TimeToLossSpec, find: Find) -> float | None:
    """The loss at which the baseline ends, the mean over all its seeds; None while one is missing."""
    ends = [curve.last_loss for curve in runs_at(spec, BASELINE, spec.steps, find)]
    return statistics.fmean(ends) if len(ends) == spec.seeds else None


def curve_at(spec: TimeToLossSpec, name: str, steps: int, seed: int, find: Find) -> Curve | None:
    """A contender's kept run at its optimizer's rate."""
    rate = rate_of(spec, optimizer_of(name), find)
    return None if rate is None else find(spec.curve(name, rate, steps, seed))


def runs_at(spec: TimeToLossSpec, name: str, steps: int, find: Find) -> list[Curve]:
    """The kept runs of one length, of all seeds that the contender is trained with."""
    found = [curve_at(spec, name, steps, seed, find) for seed in spec.seeds_of(name)]
    return [curve for curve in found if curve is not None]


def tried_lengths(spec: TimeToLossSpec, name: str, target: float, find: Find) -> dict[int, bool]:
    """Of each length that the first seed has run: whether every seed that has run it reaches the target."""
    return {
        steps: all(curve.reaches(target) for curve in runs_at(spec, name, steps, find))
        for steps in spec.lengths(name)
        if curve_at(spec, name, steps, 0, find) is not None
    }


def length_of(spec: TimeToLossSpec, name: str, find: Find) -> int | None:
    """The length that counts: the least that reaches; where none does, the longest that was run."""
    target = target_of(spec, find)
    if target is None:
        return None
    tried = tried_lengths(spec, name, target, find)
    reaching = [steps for steps, reaches in tried.items() if reaches]
    return min(reaching, default=max(tried, default=None))


def pending(spec: TimeToLossSpec, name: str, seed: int, find: Find) -> CurveSpec | None:
    """The next run that a contender needs; None when nothing more would be learned, or it cannot be told yet."""
    for each in sweep_of(spec, optimizer_of(name), find):
        if find(each) is None:
            return each
    rate = rate_of(spec, optimizer_of(name), find)
    steps = _pending_length(spec, name, seed, find)
    assert rate is not None
    return None if steps is None else spec.curve(name, rate, steps, seed)


def _pending_length(spec: TimeToLossSpec, name: str, seed: int, find: Find) -> int | None:
    lengths, target = spec.lengths(name), target_of(spec, find)
    if len(lengths) == 1:
        chosen = lengths[0]
    elif target is None:
        chosen = next_length(lengths, {}) if seed == 0 else None
    else:
        tried = tried_lengths(spec, name, target, find)
        further = next_length(lengths, tried)
        if further is not None:
            return further if seed == 0 else None
        chosen = min((steps for steps, reaches in tried.items() if reaches), default=None)
    return chosen if chosen is not None and curve_at(spec, name, chosen, seed, find) is None else None


def next_length(lengths: Sequence[int], tried: Mapping[int, bool]) -> int | None:
    """The next length to try.

    Args:
        lengths: shortest first.
        tried: of some of them, whether they reach.

    Returns:
        None where the least length that reaches is known, or that none does.
    """
    reaching = [steps for steps, reaches in tried.items() if reaches]
    low = max((steps for steps, reaches in tried.items() if not reaches), default=0)
    between = [steps for steps in lengths if low < steps < min(reaching, default=lengths[-1] + 1)]
    if not between:
        return None
    return between[len(between) // 2]


def runs_of(spec: TimeToLossSpec, names: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Contender and seed of all that is wanted: those whom the checks compare first."""
    first = [name for name in claimed(spec) if name in names]
    for name in dict.fromkeys((*first, *names)):
        yield from ((name, seed) for seed in spec.seeds_of(name))


def settled(spec: TimeToLossSpec, name: str, find: Find) -> bool:
    """Whether no run of this contender is missing that would tell more about it."""
    return target_of(spec, find) is not None and all(
        pending(spec, name, seed, find) is None for seed in spec.seeds_of(name)
    )

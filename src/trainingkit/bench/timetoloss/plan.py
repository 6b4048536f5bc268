"""Which curves are still to be run? From those that are there: the sweep first, then the shortest length that reaches.

A contender may train as long as it likes; what counts is the least length at whose end it has the target loss. That
length is searched among a few: up while the target is missed, down while it is met. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from trainingkit.bench.timetoloss.catalogue import BASELINE, MUON
from trainingkit.bench.timetoloss.curve import Curve, CurveSpec
from trainingkit.bench.timetoloss.spec import FIRST, MOST_RATES, RATES, TimeToLossSpec, optimizer_of

FOREMOST = 5
"""So many contenders have one curve before any has a second."""
Find = Callable[[CurveSpec], Curve | None]
"""The kept curve of these settings, or None."""


def sweep_of(spec: TimeToLossSpec, optimizer: str, find: Find) -> list[CurveSpec]:
    """The runs that choose an optimizer's rate, as far as can be told: dense, one seed, beyond an end that is best."""
    name = BASELINE if optimizer == "adamw" else BASELINE + MUON
    rates = list(RATES[optimizer])
    while True:
        runs = [spec.curve(name, rate, spec.sweep_steps) for rate in rates]
        best = _best_of(runs, find)
        further = {min(rates): min(rates) / 2, max(rates): 2 * max(rates)}
        if best is None or best not in further or len(rates) >= MOST_RATES:
            return runs
        rates.append(further[best])


def rate_of(spec: TimeToLossSpec, optimizer: str, find: Find) -> float | None:
    """The rate with the lowest loss at the end of the sweep's runs; None while one of them is missing."""
    return _best_of(sweep_of(spec, optimizer, find), find)


def _best_of(runs: Sequence[CurveSpec], find: Find) -> float | None:
    found = [find(each) for each in runs]
    curves = [curve for curve in found if curve is not None]
    return min(curves, key=lambda curve: curve.last_loss).spec.rate if len(curves) == len(found) else None


def target_of(spec: TimeToLossSpec, seed: int, find: Find) -> float | None:
    """The loss at which the baseline of this seed ends."""
    rate = rate_of(spec, "adamw", find)
    curve = None if rate is None else find(spec.curve(BASELINE, rate, spec.steps, seed))
    return None if curve is None else curve.last_loss


def curves_of(spec: TimeToLossSpec, name: str, seed: int, find: Find) -> list[Curve]:
    """All kept runs of a contender at its optimizer's rate, by length."""
    rate = rate_of(spec, optimizer_of(name), find)
    if rate is None:
        return []
    found = [find(spec.curve(name, rate, steps, seed)) for steps in spec.lengths(name)]
    return [curve for curve in found if curve is not None]


def pending(spec: TimeToLossSpec, name: str, seed: int, find: Find) -> CurveSpec | None:
    """The next run that a contender needs; None when nothing more would be learned, or the target is not known yet."""
    optimizer = optimizer_of(name)
    for each in sweep_of(spec, optimizer, find):
        if find(each) is None:
            return each
    rate = rate_of(spec, optimizer, find)
    assert rate is not None
    steps = next_length(spec.lengths(name), curves_of(spec, name, seed, find), target_of(spec, seed, find))
    return None if steps is None else spec.curve(name, rate, steps, seed)


def next_length(lengths: Sequence[int], curves: Sequence[Curve], target: float | None) -> int | None:
    """The next length to try.

    Args:
        lengths: shortest first.
        curves: runs that are there, of some of these lengths.
        target: None: only the first length can be told.

    Returns:
        None where the least length that reaches is known, or that none does.
    """
    if not curves:
        return lengths[min(FIRST, len(lengths) - 1)]
    if target is None:
        return None
    reaching = [curve.spec.steps for curve in curves if curve.last_loss <= target]
    missing = [curve.spec.steps for curve in curves if curve.last_loss > target]
    low, high = max(missing, default=0), min(reaching, default=lengths[-1] + 1)
    between = [steps for steps in lengths if low < steps < high]
    if not between:
        return None
    return between[-1] if reaching else between[0]


def runs_of(spec: TimeToLossSpec, names: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Contender and seed of all that is wanted: seed 0 of the foremost, all seeds of the two judged ones, the rest."""
    for name in names[:FOREMOST]:
        yield name, 0
    for seed in range(1, spec.seeds):
        yield from ((name, seed) for name in (BASELINE, spec.winner) if name in names)
    for name in names[FOREMOST:]:
        yield name, 0

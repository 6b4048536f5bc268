"""Which peak rate does an optimizer get? The one of the lowest loss at the end of a sweep's dense runs, with one seed.

The sweep runs short: about as long as contenders with Muon train. AdamW's contenders train longer, and what is best
over 40 steps need not be over 120; so its best rates run again at the baseline's own length, and those runs decide. A
rate is taken once its half and its double were tried at the same length and were worse. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainingkit.bench.timetoloss.catalogue import BASELINE, MUON
from trainingkit.bench.timetoloss.curve import Curve, CurveSpec, Find
from trainingkit.bench.timetoloss.spec import RATES, TimeToLossSpec

MOST_RATES = 6
"""Of one length; where the sweep stops in any case."""
BEST = 2
"""So many of the short runs go on at the length that decides."""
DENSE = {"adamw": BASELINE, "muon": BASELINE + MUON}
"""Who runs the sweep of an optimizer."""


def sweep_of(spec: TimeToLossSpec, optimizer: str, find: Find) -> list[CurveSpec]:
    """The runs that choose an optimizer's rate, as far as can be told from those that are there."""
    short = _widened(spec, optimizer, RATES[optimizer], spec.sweep_steps, find)
    ranked = _ranked(short, find)
    if ranked is None or spec.deciding_steps(optimizer) == spec.sweep_steps:
        return short
    return [*short, *_widened(spec, optimizer, ranked[:BEST], spec.deciding_steps(optimizer), find)]


def rate_of(spec: TimeToLossSpec, optimizer: str, find: Find) -> float | None:
    """The rate with the lowest loss at the length that decides; None while a run of the sweep is missing."""
    ranked = _ranked(_deciding(spec, optimizer, find), find)
    return ranked[0] if ranked else None


def describe_sweep(spec: TimeToLossSpec, optimizer: str, find: Find) -> dict[str, Any]:
    """The rate, the length that decided, the loss at its end by rate, and whether half and double were worse."""
    runs = _deciding(spec, optimizer, find)
    rate = rate_of(spec, optimizer, find)
    tried = {each.rate for each in runs}
    return {
        "rate": rate,
        "steps": spec.deciding_steps(optimizer),
        "loss_by_rate": {f"{curve.spec.rate:g}": curve.last_loss for curve in _found(runs, find)},
        "half_and_double_worse": rate is not None and {rate / 2, 2 * rate} <= tried,
    }


def _deciding(spec: TimeToLossSpec, optimizer: str, find: Find) -> list[CurveSpec]:
    """The runs of the length that decides; none while the short ones are not all there."""
    return [each for each in sweep_of(spec, optimizer, find) if each.steps == spec.deciding_steps(optimizer)]


def _widened(spec: TimeToLossSpec, optimizer: str, rates: Sequence[float], steps: int, find: Find) -> list[CurveSpec]:
    """Runs of these rates, and of the half and the double of what turns out to be the best."""
    tried = list(rates)
    while True:
        runs = [spec.curve(DENSE[optimizer], rate, steps) for rate in tried]
        ranked = _ranked(runs, find)
        if ranked is None or len(tried) >= MOST_RATES:
            return runs
        beside = [rate for rate in (ranked[0] / 2, 2 * ranked[0]) if rate not in tried]
        if not beside:
            return runs
        tried.append(beside[0])


def _ranked(runs: Sequence[CurveSpec], find: Find) -> list[float] | None:
    """Rates of the runs, that of the lowest last loss first; None while one of them is missing."""
    curves = _found(runs, find)
    if len(curves) < len(runs):
        return None
    return [curve.spec.rate for curve in sorted(curves, key=lambda curve: curve.last_loss)]


def _found(runs: Sequence[CurveSpec], find: Find) -> list[Curve]:
    """Those that are there, by rate."""
    curves = [curve for curve in map(find, runs) if curve is not None]
    return sorted(curves, key=lambda curve: curve.spec.rate)

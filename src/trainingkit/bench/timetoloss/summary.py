"""From what is kept to the shared result: checks, rows, facts, and notes on what to mind. Measures nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from trainingkit.bench.network.spec import REFERENCE, TWIN
from trainingkit.bench.result import Check, Result, describe_aa, make_check, make_result
from trainingkit.bench.stats import Interval
from trainingkit.bench.timetoloss import apart30, compose, proving
from trainingkit.bench.timetoloss.catalogue import BASELINE, entry_of
from trainingkit.bench.timetoloss.curve import Find
from trainingkit.bench.timetoloss.minding import notes_of
from trainingkit.bench.timetoloss.plan import claimed, runs_at, target_of
from trainingkit.bench.timetoloss.rates import describe_sweep
from trainingkit.bench.timetoloss.reaching import reaches
from trainingkit.bench.timetoloss.spec import RATES, TimeToLossSpec
from trainingkit.bench.timetoloss.times import Times, read_times


def summarise(
    spec: TimeToLossSpec, names: Sequence[str], groups: Sequence[str], cache: Path, find: Find, *, command: str
) -> Result:
    """The result.

    Args:
        names: contenders whose curves are wanted.
        groups: groups whose times are wanted.
        command: what a person types to get it again.
    """
    times = {link: read_times(spec, link, cache) for link in spec.links}
    speedups = compose.checks_of(spec, times, find)
    bits = proving.same_bits(spec, to_prove(spec, names, find), cache, find)
    return make_result(
        "time-to-loss",
        command=command,
        checks=[*speedups, *bits_checks(bits, claims=bool(speedups)), *apart30.checks_of(times)],
        rows=[*compose.rows_of(spec, times, find), *_gap_rows(spec, find)],
        aa=_aa(times),
        facts={**facts_of(spec, times, find), **_work(times)},
        notes=notes_of(spec, names, groups, times, bits, cache, find),
    )


def to_prove(spec: TimeToLossSpec, names: Sequence[str], find: Find) -> list[str]:
    """Whose bits must be the same: all whom the checks compare, and who is asked for and has a curve."""
    return list(dict.fromkeys((*claimed(spec), *(name for name in names if reaches(spec, name, find)))))


def bits_checks(bits: Mapping[str, bool | None], *, claims: bool) -> list[Check]:
    """That every one is proven to have the same bits; nothing where nothing was tried and nothing is claimed."""
    if not claims and all(found is None for found in bits.values()):
        return []
    same = float(all(bits.values()))
    return [make_check("same_bits", Interval(same, same, same), ">= 1", bounds="no bounds: all or not")]


def facts_of(spec: TimeToLossSpec, times: Mapping[str, Times], find: Find) -> dict[str, object]:
    """The target, how the rates were found, steps by seed of the two that are judged, rho by link."""
    ends = [curve.last_loss for curve in runs_at(spec, BASELINE, spec.steps, find)]
    steps = {
        name: [each.steps if each.reached else None for each in reaches(spec, name, find)]
        for name in (BASELINE, spec.winner)
    }
    return {
        "hosts": spec.hosts,
        "scale": spec.scale,
        "compute": spec.compute,
        "baseline": f"{entry_of(BASELINE).label}, AdamW, {spec.steps} steps with a cosine",
        "judged": spec.winner,
        "target": target_of(spec, find),
        "baseline_ends_by_seed": ends,
        "steps_by_seed": steps,
        "sweep_by_optimizer": {kind: describe_sweep(spec, kind, find) for kind in RATES},
        "rho_by_link": {link: of_link.rho() for link, of_link in times.items()},
    }


def _gap_rows(spec: TimeToLossSpec, find: Find) -> list[dict[str, object]]:
    return [{"kind": "every30", **row} for row in apart30.gap_rows(spec, find)]


def _aa(times: Mapping[str, Times]) -> dict[str, object]:
    """The noisiest group of all links."""
    found = [
        (group.turns.ratio(TWIN, REFERENCE), group.rounds, f"{link}, {name}")
        for link, of_link in times.items()
        for name, group in of_link.groups.items()
    ]
    if not found:
        return {}
    worst = max(found, key=lambda each: abs(each[0].value - 1.0))
    return describe_aa(worst[0], worst[1], f"no communication against itself, the noisiest: {worst[2]}")


def _work(times: Mapping[str, Times]) -> dict[str, object]:
    """What was run, by the workers' own words."""
    for of_link in times.values():
        for group in of_link.groups.values():
            return {name: value for name, value in group.facts.items() if name != "optimizer"}
    return {}

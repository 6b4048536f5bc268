"""From what is kept to the shared result: checks, rows, facts, and notes on what is missing. Measures nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trainingkit.bench.network.spec import REFERENCE, TWIN
from trainingkit.bench.result import Check, Result, describe_aa, make_check, make_result
from trainingkit.bench.stats import Interval
from trainingkit.bench.timetoloss import apart30, compose, proving
from trainingkit.bench.timetoloss.catalogue import label_of
from trainingkit.bench.timetoloss.curves import missing
from trainingkit.bench.timetoloss.plan import Find, rate_of
from trainingkit.bench.timetoloss.spec import RATES, TimeToLossSpec
from trainingkit.bench.timetoloss.times import Times, groups_on, read_times


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
    bits = proving.same_bits(spec, names, cache, find)
    checks = [*compose.checks_of(spec, times, find), *_bits_checks(bits), *apart30.checks_of(times)]
    rates = {kind: rate_of(spec, kind, find) for kind in RATES}
    return make_result(
        "time-to-loss",
        command=command,
        checks=checks,
        rows=[*compose.rows_of(spec, times, find), *_gap_rows(spec, cache)],
        aa=_aa(times),
        facts={**compose.facts_of(spec, times, find), "rate_by_optimizer": rates, **_work(times)},
        notes=[*_confirmed_notes(spec, times, cache, find), *_missing_notes(spec, names, groups, times, find)],
    )


def _bits_checks(bits: dict[str, bool]) -> list[Check]:
    if not bits:
        return []
    same = float(all(bits.values()))
    return [make_check("same_bits", Interval(same, same, same), ">= 1")]


def _gap_rows(spec: TimeToLossSpec, cache: Path) -> list[dict[str, object]]:
    return [{"kind": "every30", **row} for row in apart30.gap_rows(spec, cache)]


def _aa(times: dict[str, Times]) -> dict[str, object]:
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


def _work(times: dict[str, Times]) -> dict[str, object]:
    """What was run, by the workers' own words."""
    for of_link in times.values():
        for group in of_link.groups.values():
            return {name: value for name, value in group.facts.items() if name != "optimizer"}
    return {}


def _confirmed_notes(spec: TimeToLossSpec, times: dict[str, Times], cache: Path, find: Find) -> list[str]:
    link = proving.CONFIRMED_LINK
    notes = []
    for name, shaped in proving.confirmed(spec, cache, find).items():
        entry = compose.entry_of(name)
        step_s = times[link].step_s(entry.timing) if link in times else None
        composed = "" if step_s is None else f"; composed of steps: {shaped.spec.steps * step_s / 60:.1f}"
        notes.append(
            f"Confirmed at {link}: {label_of(name)}, {shaped.spec.steps} steps to loss {shaped.last_loss:.4f}, took "
            f"{shaped.seconds / 60:.1f} minutes by the clock{composed}."
        )
    return notes


def _missing_notes(
    spec: TimeToLossSpec, names: Sequence[str], wanted: Sequence[str], times: dict[str, Times], find: Find
) -> list[str]:
    notes = [
        f"Missing curve: {each.name}, rate {each.rate:g}, {each.steps} steps, seed {each.seed}."
        for each in missing(spec, names, find)
    ]
    for link, of_link in times.items():
        groups = [name for name in groups_on(link, wanted) if name not in of_link.groups]
        if groups:
            notes.append(f"Missing times at {link}: {', '.join(groups)}.")
        for group in of_link.groups.values():
            notes += [f"At {link} {label_of(name)} stopped: {why}" for name, why in group.failed.items()]
    return notes

"""What to mind in a result, in sentences: what is missing, not reached, not proven; what was confirmed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from trainingkit.bench.timetoloss import apart30, proving
from trainingkit.bench.timetoloss.catalogue import BF16, entry_of
from trainingkit.bench.timetoloss.curve import CurveSpec, Find
from trainingkit.bench.timetoloss.curves import missing
from trainingkit.bench.timetoloss.plan import target_of
from trainingkit.bench.timetoloss.rates import describe_sweep
from trainingkit.bench.timetoloss.reaching import reach
from trainingkit.bench.timetoloss.spec import RATES, TimeToLossSpec
from trainingkit.bench.timetoloss.times import APART, Times, groups_on


def notes_of(
    spec: TimeToLossSpec,
    names: Sequence[str],
    groups: Sequence[str],
    times: Mapping[str, Times],
    bits: Mapping[str, bool | None],
    cache: Path,
    find: Find,
) -> list[str]:
    """All of them.

    Args:
        names: contenders whose curves are wanted.
        groups: groups whose times are wanted.
        bits: of each contender, whether its bits are the same on a shaped link; None: not tried.
    """
    return [
        *_confirmed(spec, times, cache, find),
        *_not_reached(spec, find),
        *_sweeps(spec, find),
        *_bits(bits),
        *_missing_curves(spec, names, groups, find),
        *_missing_times(times, groups),
    ]


def _confirmed(spec: TimeToLossSpec, times: Mapping[str, Times], cache: Path, find: Find) -> list[str]:
    link = proving.CONFIRMED_LINK
    notes = []
    for name, shaped in proving.confirmed(spec, cache, find).items():
        entry = entry_of(name)
        step_s = times[link].step_s(entry.timing) if link in times else None
        composed = "" if step_s is None else f"; composed of steps: {shaped.spec.steps * step_s / 60:.1f}"
        notes.append(
            f"Confirmed at {link}: {entry.label}, {shaped.spec.steps} steps to loss {shaped.last_loss:.4f}, took "
            f"{shaped.seconds / 60:.1f} minutes by the clock{composed}."
        )
    return notes


def _not_reached(spec: TimeToLossSpec, find: Find) -> list[str]:
    """Seeds of the judged contender that never have the target, and the bf16 wire where it has not."""
    target = target_of(spec, find)
    notes = []
    for name, so in ((spec.winner, "there is no speedup"), (BF16, "its whole length counts, which favours it")):
        for seed in spec.seeds_of(name):
            seen = reach(spec, name, seed, find)
            if seen is not None and not seen.reached:
                notes.append(
                    f"Not reached: {entry_of(name).label}, seed {seed}, ends its {seen.curve.spec.steps} steps at "
                    f"{seen.curve.last_loss:.4f}, above the target {target:.4f}; {so}."
                )
    return notes


def _sweeps(spec: TimeToLossSpec, find: Find) -> list[str]:
    """Rates that were taken though half or double was not tried at that length."""
    found = {kind: describe_sweep(spec, kind, find) for kind in RATES}
    return [
        f"The rate of {kind}, {sweep['rate']:g}, is at the end of those tried over {sweep['steps']} steps."
        for kind, sweep in found.items()
        if sweep["rate"] is not None and not sweep["half_and_double_worse"]
    ]


def _bits(bits: Mapping[str, bool | None]) -> list[str]:
    link = proving.CONFIRMED_LINK
    other = [name for name, same in bits.items() if same is False]
    unknown = [name for name, same in bits.items() if same is None]
    notes = [f"Other bits at {link} than on open links: {', '.join(other)}."] if other else []
    return [*notes, *([f"Not proven to be the same bits at {link}: {', '.join(unknown)}."] if unknown else [])]


def _missing_curves(spec: TimeToLossSpec, names: Sequence[str], groups: Sequence[str], find: Find) -> list[str]:
    wanted = [*missing(spec, names, find), *(apart30.pending_gaps(spec, find) if APART in groups else [])]
    return [f"Missing curve: {_words(each)}." for each in wanted]


def _words(spec: CurveSpec) -> str:
    scale = "" if spec.scale == "full" else f", {spec.scale}"
    return f"{spec.name}, rate {spec.rate:g}, {spec.steps} steps, seed {spec.seed}{scale}"


def _missing_times(times: Mapping[str, Times], wanted: Sequence[str]) -> list[str]:
    notes = []
    for link, of_link in times.items():
        groups = [name for name in groups_on(link, wanted) if name not in of_link.groups]
        if groups:
            notes.append(f"Missing times at {link}: {', '.join(groups)}.")
        for group in of_link.groups.values():
            notes += [f"At {link} {entry_of(name).label} stopped: {why}" for name, why in group.failed.items()]
    return notes

"""Time to the target loss: steps until it, by the curves, times seconds of a step, by the shaped bench. Pure.

speedup  (steps of the reference / steps of the contender) x (seconds of its step / seconds of the contender's step),
         the first factor the median over seeds, the second over rounds that both attended. Its lower bound is the
         worst seed times the lower bound of the seconds' ratio, its upper bound the best seed times the upper one.
         Of a contender with a seed that never reaches the target it is none: 0, in all three.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from trainingkit.bench.result import Check, known, make_check
from trainingkit.bench.stats import Interval, median_interval
from trainingkit.bench.timetoloss.catalogue import (
    BASELINE,
    BF16,
    CATALOGUE,
    IDEAS,
    LIMITS,
    OURS,
    TODAY,
    Entry,
    ablation_of,
    entry_of,
)
from trainingkit.bench.timetoloss.curve import Find
from trainingkit.bench.timetoloss.plan import settled
from trainingkit.bench.timetoloss.reaching import NEVER, reaches, step_ratios
from trainingkit.bench.timetoloss.spec import TimeToLossSpec
from trainingkit.bench.timetoloss.times import ONLY_ON, Times

GOALS = {"100mbit": 9.0, "25mbit": 30.0, "10mbit": 70.0}
OTHER_GOAL = 1.0
REFERENCES = {"speedup": BASELINE, "speedup_vs_bf16": BF16}
BOUNDS = "worst seed x lower bound of the seconds' 90 % interval to best seed x upper bound"
NONE = Interval(NEVER, NEVER, NEVER)
UNKNOWN = Interval(math.nan, math.nan, math.nan)
ABLATION = "ablation"


def kinds_of(winner: str) -> dict[str, Sequence[Entry]]:
    """The contenders by the table they are in; a judged one that the catalogue lacks is one of ours."""
    others = () if entry_of(winner) in CATALOGUE else (entry_of(winner),)
    found: dict[str, Sequence[Entry]] = {"today": TODAY, "ours": (*OURS, *others), "idea": IDEAS}
    return found | {ABLATION: ablation_of(winner), "limit": LIMITS}


def speedup(spec: TimeToLossSpec, times: Times, entry: Entry, reference: Entry, find: Find) -> Interval | None:
    """How many times sooner; without bounds while a curve of either is missing.

    Returns:
        None where no seed or no round tells; `NONE` where a seed never reaches the target.
    """
    steps = step_ratios(spec, entry.name, reference.name, find)
    seconds = median_interval(times.behind(entry.timing, reference.timing))
    if not steps or known(seconds.value) is None:
        return None
    if NEVER in steps:
        return NONE
    value = statistics.median(steps) * seconds.value
    if not all(settled(spec, name, find) for name in (entry.trained_as, reference.trained_as)):
        return Interval(value, math.nan, math.nan)
    return Interval(value, min(steps) * seconds.low, max(steps) * seconds.high)


def checks_of(spec: TimeToLossSpec, times: Mapping[str, Times], find: Find) -> list[Check]:
    """Of each link: the judged contender over plain DDP with the fp32 wire, and over the bf16 wire."""
    checks = []
    judged = entry_of(spec.winner)
    for link, of_link in times.items():
        goal = GOALS.get(link, OTHER_GOAL)
        for (words, reference), least in zip(REFERENCES.items(), (goal, goal / 2), strict=True):
            found = speedup(spec, of_link, judged, entry_of(reference), find)
            if found is not None:
                checks.append(make_check(f"{words}@{link}", found, f">= {least:g}", bounds=BOUNDS))
    return checks


def rows_of(spec: TimeToLossSpec, times: Mapping[str, Times], find: Find) -> list[dict[str, Any]]:
    """One row per link, kind and contender for which something is known."""
    rows = []
    for link, of_link in times.items():
        for kind, entries in kinds_of(spec.winner).items():
            if ONLY_ON.get(kind, link) != link:
                continue
            found = [row_of(spec, link, kind, of_link, entry, find) for entry in entries]
            rows += [row for row in found if row is not None]
    return rows


def row_of(spec: TimeToLossSpec, link: str, kind: str, times: Times, entry: Entry, find: Find) -> dict[str, Any] | None:
    """A contender on a link; None where neither curve nor time is known. Unknown figures are null."""
    seen, step_s = reaches(spec, entry.name, find), times.step_s(entry.timing)
    if not seen and step_s is None:
        return None
    steps = statistics.median(each.steps for each in seen) if seen else None
    return {
        "link": link,
        "kind": kind,
        "name": entry.name,
        "label": entry.label,
        "judged": entry.name == spec.winner,
        "rate": seen[0].curve.spec.rate if seen else None,
        "length": seen[0].curve.spec.steps if seen else None,
        "last_loss": statistics.fmean(each.curve.last_loss for each in seen) if seen else None,
        "steps_to_loss": steps,
        "steps_by_seed": [each.steps if each.reached else None for each in seen],
        "reached": all(each.reached for each in seen) if seen else None,
        "step_s": step_s,
        "minutes": steps * step_s / 60 if steps is not None and step_s is not None else None,
        **_ratios(spec, kind, times, entry, find),
        "curve": seen[0].curve.losses if seen else [],
    }


def _ratios(spec: TimeToLossSpec, kind: str, times: Times, entry: Entry, find: Find) -> dict[str, float | None]:
    """How many times sooner than others; in the ablation, how many times the judged contender's time it takes."""
    pairs = {words: (entry, entry_of(reference)) for words, reference in REFERENCES.items()}
    if kind == ABLATION:
        pairs["times_judged"] = (entry_of(spec.winner), entry)
    row: dict[str, float | None] = {}
    for words, (own, other) in pairs.items():
        found = speedup(spec, times, own, other, find)
        found = UNKNOWN if found is None or found == NONE else found
        bounds = {"": found.value, "_low": found.low, "_high": found.high}
        row |= {words + end: known(value) for end, value in bounds.items()}
    return row

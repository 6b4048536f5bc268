"""Time to the target loss: steps until it, by the curves, times seconds of a step, by the shaped bench. Pure.

speedup  (steps of the reference / steps of the contender) x (seconds of its step / seconds of the contender's step),
         the first factor the median over seeds, the second over rounds that both attended. Its lower bound is the
         worst seed times the lower bound of the seconds' ratio, its upper bound the best seed times the upper one.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from trainingkit.bench.result import Check, known, make_check
from trainingkit.bench.stats import Interval, median_interval
from trainingkit.bench.timetoloss.catalogue import (
    ABLATION,
    BASELINE,
    BF16,
    IDEAS,
    LIMITS,
    OURS,
    TODAY,
    Entry,
)
from trainingkit.bench.timetoloss.plan import Find, target_of
from trainingkit.bench.timetoloss.reaching import reach, step_ratios
from trainingkit.bench.timetoloss.spec import TimeToLossSpec
from trainingkit.bench.timetoloss.times import ONLY_ON, Times

GOALS = {"100mbit": 9.0, "25mbit": 30.0, "10mbit": 70.0}
OTHER_GOAL = 1.0
KINDS: dict[str, Sequence[Entry]] = {
    "today": TODAY,
    "ours": OURS,
    "idea": IDEAS,
    "ablation": ABLATION,
    "limit": LIMITS,
}


def speedup(spec: TimeToLossSpec, times: Times, entry: Entry, reference: Entry, find: Find) -> Interval | None:
    """How many times sooner; None where a curve or a time is missing, or the target is never reached."""
    steps = step_ratios(spec, entry.name, reference.name, find)
    seconds = median_interval(times.behind(entry.timing, reference.timing))
    if not steps or known(seconds.value) is None:
        return None
    return Interval(statistics.median(steps) * seconds.value, min(steps) * seconds.low, max(steps) * seconds.high)


def checks_of(spec: TimeToLossSpec, times: Mapping[str, Times], find: Find) -> list[Check]:
    """Of each link: the judged contender over plain DDP with the fp32 wire, and over the bf16 wire."""
    checks = []
    judged = entry_of(spec.winner)
    for link, of_link in times.items():
        goal = GOALS.get(link, OTHER_GOAL)
        for words, reference, least in (("speedup", BASELINE, goal), ("speedup_vs_bf16", BF16, goal / 2)):
            found = speedup(spec, of_link, judged, entry_of(reference), find)
            if found is not None:
                checks.append(make_check(f"{words}@{link}", found, f">= {least:g}"))
    return checks


def rows_of(spec: TimeToLossSpec, times: Mapping[str, Times], find: Find) -> list[dict[str, Any]]:
    """One row per link, kind and contender for which something is known."""
    rows = []
    for link, of_link in times.items():
        for kind, entries in KINDS.items():
            if ONLY_ON.get(kind, link) != link:
                continue
            found = [row_of(spec, link, kind, of_link, entry, find) for entry in entries]
            rows += [row for row in found if row is not None]
    return rows


def row_of(spec: TimeToLossSpec, link: str, kind: str, times: Times, entry: Entry, find: Find) -> dict[str, Any] | None:
    """A contender on a link; None where neither curve nor time is known. Unknown figures are null."""
    seen, step_s = reach(spec, entry.name, 0, find), times.step_s(entry.timing)
    if seen is None and step_s is None:
        return None
    faster = {
        words: speedup(spec, times, entry, entry_of(reference), find) or Interval(*[float("nan")] * 3)
        for words, reference in (("speedup", BASELINE), ("speedup_vs_bf16", BF16))
    }
    return {
        "link": link,
        "kind": kind,
        "name": entry.name,
        "label": entry.label,
        "judged": entry.name == spec.winner,
        "rate": seen.curve.spec.rate if seen else None,
        "length": seen.curve.spec.steps if seen else None,
        "last_loss": seen.curve.last_loss if seen else None,
        "steps_to_loss": seen.steps if seen else None,
        "reached": seen.reached if seen else None,
        "step_s": step_s,
        "minutes": seen.steps * step_s / 60 if seen and step_s is not None else None,
        **{words: known(found.value) for words, found in faster.items()},
        "speedup_low": known(faster["speedup"].low),
        "speedup_high": known(faster["speedup"].high),
        "curve": seen.curve.losses if seen else [],
    }


def facts_of(spec: TimeToLossSpec, times: Mapping[str, Times], find: Find) -> dict[str, Any]:
    """Target by seed, rho by link, steps by seed of the two that are judged."""
    targets = [target_of(spec, seed, find) for seed in range(spec.seeds)]
    winner = [reach(spec, spec.winner, seed, find) for seed in range(spec.seeds)]
    return {
        "hosts": spec.hosts,
        "scale": spec.scale,
        "baseline": f"{entry_of(BASELINE).label}, AdamW, {spec.steps} steps with a cosine",
        "judged": spec.winner,
        "target_by_seed": targets,
        "steps_by_seed": [None if each is None or not each.reached else each.steps for each in winner],
        "rho_by_link": {link: of_link.rho() for link, of_link in times.items()},
    }


def entry_of(name: str) -> Entry:
    """The catalogue's entry, or one with the name alone."""
    for entries in (TODAY, OURS, IDEAS, LIMITS, ABLATION):
        for entry in entries:
            if entry.name == name:
                return entry
    return Entry(name, name)

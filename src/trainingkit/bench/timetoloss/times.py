"""The part that times: steps on a shaped link, turn by turn as in the network bench, kept one file a link and group.

A group is what fits into the memory of one set of processes; plain DDP and no communication are in each, so that ratios
are taken within a round. A contender that trains apart takes a whole round of H steps as its turn.
"""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from trainingkit.bench.cache import keep
from trainingkit.bench.network.run import Glance, measure
from trainingkit.bench.network.spec import JUDGED, PLAIN, REFERENCE, Measured, NetworkSpec
from trainingkit.bench.paired import Turns
from trainingkit.bench.timetoloss.catalogue import (
    BASELINE,
    BF16,
    EIGHT,
    LIMIT,
    LOCAL_SGD,
    MUON,
    SMALLER,
    WINNER,
    ablation_of,
)
from trainingkit.bench.timetoloss.spec import TimeToLossSpec
from trainingkit.core.section import check

VERSION = 1
TURNS = 5
"""Of each contender: the fewest that give bounds."""
GROUPS: dict[str, tuple[str, ...]] = {
    "judged": (PLAIN, BF16, LIMIT + MUON),
    "today": (PLAIN, BF16, "powersgd-2", "powersgd-4", LOCAL_SGD),
    "ours": (PLAIN, BF16, LIMIT + MUON, "all|int4+muon", EIGHT, EIGHT + MUON, WINNER, SMALLER),
    "ablation": (PLAIN, BASELINE + MUON),
}
"""Beside no communication, its twin, and our gradients in int4, which are in each; `members_of` adds who is judged."""
EVERY30 = "every(30, tau=1, decay=0.95, embeddings=true)|topk(0.015625)|int2"
"""SparseLoCo's settings, each round applied a step after its start, which is as long as its wire takes."""
APART = "every30"
APART_LINK = "10mbit"
GROUPS[APART] = (EVERY30,)
ONLY_ON = {APART: APART_LINK, "ablation": "25mbit"}
"""Groups that are timed on one link alone, which is what they are about."""
SAME_AS = {"all|int4": JUDGED}
"""Contenders that every group has under another name."""
TIMING_CODEC = "all|int4"


@dataclass(frozen=True)
class Times:
    """One link's turns, by group."""

    link: str
    groups: dict[str, Measured]

    def turns_with(self, name: str) -> Turns | None:
        """The turns of the first group in which the contender took some."""
        name = SAME_AS.get(name, name)
        return next((group.turns for group in self.groups.values() if group.seconds.get(name)), None)

    def step_s(self, name: str) -> float | None:
        """Median seconds of a step; None where it was not timed."""
        turns = self.turns_with(name)
        return None if turns is None else turns.median_s(SAME_AS.get(name, name))

    def behind(self, name: str, reference: str) -> list[float]:
        """seconds(reference) / seconds(name) of each round that both attended, in all groups."""
        ours = SAME_AS.get(name, name)
        return [ratio for group in self.groups.values() for ratio in group.turns.ratios(reference, ours)]

    def rho(self) -> float | None:
        """Seconds that plain DDP adds to a step without communication, in steps without communication."""
        ratios = self.behind(REFERENCE, PLAIN)
        return statistics.median(ratios) - 1 if ratios else None


def members_of(group: str, winner: str) -> tuple[str, ...]:
    """The contenders of a group: the judged one beside whom it is compared with, in the ablation all with one change.

    Ratios are taken within a round, so whoever is divided by the judged contender must share a group with it.
    """
    added = {"judged": (winner,), "ablation": (winner, *(entry.timing for entry in ablation_of(winner)))}
    names = dict.fromkeys((*GROUPS[group], *added.get(group, ())))
    return tuple(name for name in names if name not in SAME_AS)


def timing_spec(spec: TimeToLossSpec, link: str, group: str, *, minutes: float) -> NetworkSpec:
    """The network bench's settings for one link and group."""
    values = {"hosts": spec.hosts, "scale": spec.scale, "link": link, "codec": TIMING_CODEC, "minutes": minutes}
    values |= {"contenders": list(members_of(group, spec.winner))}
    values |= {"loss_steps": 0, "rounds": TURNS, "guest_turns": TURNS}
    return check(NetworkSpec, values)


def groups_on(link: str, groups: Sequence[str]) -> list[str]:
    """Those of the groups that are timed on a link."""
    return [group for group in groups if ONLY_ON.get(group, link) == link]


def path_of(cache: Path, spec: TimeToLossSpec, link: str, group: str) -> Path:
    """Where the turns are kept; how long it might take is not in the name, nor what is left at its default.

    Seconds are those of a processor that computes in a type, so both are in the name.
    """
    settings = {
        **timing_spec(spec, link, group, minutes=1.0).model_dump(exclude={"minutes"}, exclude_defaults=True),
        "compute": spec.compute,
        "processor": spec.processor,
        "version": VERSION,
        "torch": torch.__version__,
    }
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
    return cache / "times" / f"{link}-{group}-{digest[:16]}.json"


def read_group(path: Path) -> Measured | None:
    """What is kept of one group, or None when there is nothing that can be read; damaged is as good as none."""
    try:
        found = Measured.from_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError, AttributeError):
        return None
    return found if found.seconds.get(REFERENCE) else None


def read_times(spec: TimeToLossSpec, link: str, cache: Path) -> Times:
    """What is kept of a link."""
    found = {group: read_group(path_of(cache, spec, link, group)) for group in GROUPS}
    return Times(link, {group: measured for group, measured in found.items() if measured is not None})


def time_missing(
    spec: TimeToLossSpec,
    links: Sequence[str],
    cache: Path,
    *,
    minutes: float,
    groups: Sequence[str],
    again: bool,
    show: Callable[[Glance], None],
) -> None:
    """Time the links and groups of which nothing is kept that can be read.

    Args:
        minutes: what one link and group may take; a contender's first turns are taken whatever they cost.
        again: time even what is kept.

    Raises:
        ClusterError: no lab can be made here.
    """
    for link in links:
        for group in groups_on(link, groups):
            asked = timing_spec(spec, link, group, minutes=minutes)
            path = path_of(cache, spec, link, group)
            if read_group(path) is not None and not again:
                continue
            found = measure(asked, show=lambda glance, at=f"{link}, {group}": show(_at(glance, at)))
            keep(path, found.to_json())


def _at(glance: Glance, where: str) -> Glance:
    return Glance(f"{where}: {glance.part}", glance.contender, glance.done, glance.left_s, glance.text)

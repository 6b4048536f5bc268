"""The part that times: steps on a shaped link, turn by turn as in the network bench, kept one file a link and group.

A group is what fits into the memory of one set of processes; plain DDP and no communication are in each, so that ratios
are taken within a round. A contender that trains apart takes a whole round of H steps as its turn.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from trainingkit.bench.network.run import Glance, measure
from trainingkit.bench.network.spec import JUDGED, PLAIN, REFERENCE, TWIN, Measured, NetworkSpec
from trainingkit.bench.paired import Turns, is_quiet
from trainingkit.bench.stats import Interval
from trainingkit.bench.timetoloss.catalogue import BASELINE, BF16, LIMIT, LOCAL_SGD, MUON, WINNER
from trainingkit.bench.timetoloss.curve import keep
from trainingkit.bench.timetoloss.spec import TimeToLossSpec
from trainingkit.core.section import check

VERSION = 1
TURNS = 5
"""Of each contender: the fewest that give bounds."""
GROUPS: dict[str, tuple[str, ...]] = {
    "today": (PLAIN, BF16, "powersgd-2", "powersgd-4", LOCAL_SGD),
    "ours": (
        PLAIN,
        BF16,
        LIMIT + MUON,
        "all|int4+muon",
        "every(2)|all|int4+muon",
        WINNER,
        "every(4)|all|int4+muon(ns_steps=3)",
        "every(8)|all|int2+muon",
    ),
    "ablation": (
        PLAIN,
        BASELINE + MUON,
        "every(4)|all|int4",
        "every(4)|none+muon",
        WINNER + "+fp32",
    ),
}
"""Beside no communication, its twin, and our gradients in int4, which are in each."""
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
        return sorted(ratios)[len(ratios) // 2] - 1 if ratios else None

    def aa(self) -> Interval | None:
        """No communication against itself in the group with the most rounds."""
        found = max(self.groups.values(), key=lambda group: group.rounds, default=None)
        return None if found is None else found.turns.ratio(TWIN, REFERENCE)

    def quiet(self) -> bool:
        """Whether every group's A/A held."""
        return all(is_quiet(group.turns.ratio(TWIN, REFERENCE)) for group in self.groups.values())


def timing_spec(spec: TimeToLossSpec, link: str, group: str, *, minutes: float) -> NetworkSpec:
    """The network bench's settings for one link and group."""
    values = {"hosts": spec.hosts, "scale": spec.scale, "link": link, "codec": TIMING_CODEC, "minutes": minutes}
    values |= {"contenders": list(GROUPS[group]), "loss_steps": 0, "rounds": TURNS, "guest_turns": TURNS}
    return check(NetworkSpec, values)


def groups_on(link: str, groups: Sequence[str]) -> list[str]:
    """Those of the groups that are timed on a link."""
    return [group for group in groups if ONLY_ON.get(group, link) == link]


def path_of(cache: Path, spec: NetworkSpec, group: str) -> Path:
    """Where the turns are kept; how long it might take is not in the name, nor what is left at its default."""
    settings = {
        **spec.model_dump(exclude={"minutes"}, exclude_defaults=True),
        "version": VERSION,
        "torch": torch.__version__,
    }
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
    return cache / "times" / f"{spec.link}-{group}-{digest[:16]}.json"


def read_times(spec: TimeToLossSpec, link: str, cache: Path) -> Times:
    """What is kept of a link."""
    found: dict[str, Measured] = {}
    for group in GROUPS:
        path = path_of(cache, timing_spec(spec, link, group, minutes=1.0), group)
        try:
            found[group] = Measured.from_json(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, TypeError):
            continue
    return Times(link, found)


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
    """Time the links and groups that are not kept yet.

    Args:
        minutes: what one link and group may take; a contender's first turns are taken whatever they cost.
        again: time even what is kept.

    Raises:
        ClusterError: no lab can be made here.
    """
    for link in links:
        for group in groups_on(link, groups):
            asked = timing_spec(spec, link, group, minutes=minutes)
            path = path_of(cache, asked, group)
            if path.exists() and not again:
                continue
            found = measure(asked, show=lambda glance, at=f"{link}, {group}": show(_at(glance, at)))
            keep(path, found.to_json())


def _at(glance: Glance, where: str) -> Glance:
    return Glance(f"{where}: {glance.part}", glance.contender, glance.done, glance.left_s, glance.text)

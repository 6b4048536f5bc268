"""The bench in parts that can be done apart, each of which keeps what it measures: curves, bits, times, confirm.

`compose` measures nothing: it makes the result of whatever is kept, and says what is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainingkit.bench.cache import require_writable
from trainingkit.bench.contender import builder_of
from trainingkit.bench.naming import read_name
from trainingkit.bench.result import Result
from trainingkit.bench.timetoloss import apart30, proving
from trainingkit.bench.timetoloss.catalogue import BASELINE, everybody
from trainingkit.bench.timetoloss.curve import Find
from trainingkit.bench.timetoloss.curves import Kept, Show, run_missing
from trainingkit.bench.timetoloss.plan import claimed
from trainingkit.bench.timetoloss.spec import TimeToLossSpec, optimizer_of
from trainingkit.bench.timetoloss.summary import summarise
from trainingkit.bench.timetoloss.times import GROUPS, time_missing
from trainingkit.core.errors import ConfigError
from trainingkit.core.nearest import nearest
from trainingkit.netlab.rates import parse_rate

PARTS = ("curves", "bits", "times", "confirm", "every30", "compose")
MINUTES = 2.0


@dataclass(frozen=True)
class Asked:
    """What is to be done.

    Args:
        parts: of `PARTS`; the result is always composed at the end.
        only: contenders; by default the whole catalogue. Groups are not affected.
        groups: of the times.
        budget_minutes: no curve begins after so many.
        minutes: what the turns of one link and group may take beyond the fewest.
        no_run: only compose.
        again: time even what is kept.
    """

    parts: Sequence[str] = PARTS
    only: Sequence[str] = ()
    groups: Sequence[str] = tuple(GROUPS)
    budget_minutes: float | None = None
    minutes: float = MINUTES
    no_run: bool = False
    again: bool = False

    def __post_init__(self) -> None:
        for given, known, option in ((self.parts, PARTS, "--part"), (self.groups, tuple(GROUPS), "--groups")):
            for name in given:
                _check_known(name, known, option)
        for name in self.only:
            builder_of(read_name(name, field="--only").way)
            optimizer_of(name)


def run(spec: TimeToLossSpec, asked: Asked, cache: Path, *, command: str, show: Show = lambda glance: None) -> Result:
    """Do the parts, then compose the result of what is kept.

    Raises:
        ClusterError: no lab can be made here, or ranks failed.
        ConfigError: the settings cannot be used, or the cache cannot be written.
    """
    for link in spec.links:
        parse_rate(link, field="--links")
    builder_of(read_name(spec.winner, field="--winner").way)
    if not asked.no_run:
        require_writable(cache)
        _do(spec, asked, cache, Kept(cache).find, show)
    return summarise(spec, names_of(spec, asked), asked.groups, cache, Kept(cache).remembered(), command=command)


def names_of(spec: TimeToLossSpec, asked: Asked) -> list[str]:
    """Contenders whose curves are wanted: those asked for, else the catalogue's and the judged one."""
    return list(asked.only) or [entry.name for entry in everybody(spec.winner)]


def _do(spec: TimeToLossSpec, asked: Asked, cache: Path, find: Find, show: Show) -> None:
    if "curves" in asked.parts:
        run_missing(spec, names_of(spec, asked), cache, minutes=asked.budget_minutes, show=show)
    if "every30" in asked.parts:
        apart30.run_gap(spec, cache, minutes=asked.budget_minutes, show=show)
    if "times" in asked.parts:
        time_missing(spec, spec.links, cache, minutes=asked.minutes, groups=asked.groups, again=asked.again, show=show)
    if "bits" in asked.parts:
        names = dict.fromkeys((*claimed(spec), *names_of(spec, asked)))
        proving.prove(spec, list(names), cache, find, whole=False, show=show)
    if "confirm" in asked.parts:
        proving.prove(spec, (BASELINE, spec.winner), cache, find, whole=True, show=show)


def _check_known(name: str, known: Sequence[str], option: str) -> None:
    if name in known:
        return
    close = nearest(name, list(known))
    raise ConfigError(
        f"There is no {name!r} here.",
        field=option,
        found=repr(name),
        expected="some of " + ", ".join(known),
        next_step=f"Did you mean {close!r}?" if close else "Choose some of these.",
    )

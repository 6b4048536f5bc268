"""The options of `trainingkit bench time-to-loss` by purpose: what is trained, what is done now, where it goes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from trainingkit.bench.timetoloss.run import Asked
    from trainingkit.bench.timetoloss.spec import TimeToLossSpec

LINKS = "100mbit,25mbit,10mbit"


@Parameter(name="*")
@dataclass(frozen=True)
class Job:
    """What is trained and timed: with other values, other curves and times are kept."""

    links: str = LINKS
    """Rates of each host's link, both ways, separated by commas."""
    winner: str | None = None
    """The contender that is judged. Default: every(4)|all|int4+muon."""
    hosts: int = 4
    """Ranks, one process each."""
    scale: str = "full"
    """"full": a 10.8 M-parameter decoder, 8 x 256 bytes on each host. "tiny": for a try."""
    steps: int = 120
    """The baseline's length, whose end sets the target, and that of the runs that decide on AdamW's rate."""
    sweep_steps: int = 40
    """Length of the first runs that choose each optimizer's rate."""
    seeds: int = 3
    """Of the winner and the baseline; the others have one."""

    def spec(self) -> TimeToLossSpec:
        """As the bench's settings. Raises ConfigError."""
        from trainingkit.bench.contender import split_names
        from trainingkit.bench.timetoloss.catalogue import WINNER
        from trainingkit.bench.timetoloss.spec import TimeToLossSpec
        from trainingkit.core.section import check

        values = {"hosts": self.hosts, "scale": self.scale, "steps": self.steps, "sweep_steps": self.sweep_steps}
        values |= {"seeds": self.seeds, "winner": self.winner or WINNER, "links": split_names(self.links)}
        return check(TimeToLossSpec, values)


@Parameter(name="*")
@dataclass(frozen=True)
class Now:
    """What of it is done now, and how long it may take."""

    part: str | None = None
    """Parts, separated by commas. Default: all."""
    only: str | None = None
    """Contenders whose curves and proofs are wanted, separated by commas. Default: the whole catalogue."""
    groups: str | None = None
    """Groups of contenders to time: judged, today, ours, ablation, every30. Default: all."""
    budget: float | None = None
    """Minutes after which no curve begins. Default: no limit."""
    minutes: float = 2.0
    """What the turns of one link and group may take beyond five of each contender."""
    no_run: bool = False
    """Measure nothing: compose what is kept, and list what is missing."""
    again: bool = False
    """Time even what is kept."""

    def asked(self) -> Asked:
        """As the bench's own words. Raises ConfigError."""
        from trainingkit.bench.contender import split_names
        from trainingkit.bench.timetoloss.run import PARTS, Asked
        from trainingkit.bench.timetoloss.times import GROUPS

        return Asked(
            parts=split_names(self.part) if self.part else PARTS,
            only=split_names(self.only) if self.only else (),
            groups=split_names(self.groups) if self.groups else tuple(GROUPS),
            budget_minutes=self.budget,
            minutes=self.minutes,
            no_run=self.no_run,
            again=self.again,
        )


@Parameter(name="*")
@dataclass(frozen=True)
class Kept:
    """Where measurements and results are kept."""

    cache: Path | None = None
    """Where curves and times are kept. Default: the user's cache folder."""
    json_: Annotated[Path | None, Parameter(name="--json")] = None
    """Write the result there."""
    page: Path | None = None
    """Write a page with plots and tables there."""

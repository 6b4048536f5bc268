"""`trainingkit bench time-to-loss`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from trainingkit.cli.bench_end import command_typed, conclude

LINKS = "100mbit,25mbit,10mbit"


def bench_time_to_loss(
    *,
    part: str | None = None,
    links: str = LINKS,
    only: str | None = None,
    groups: str | None = None,
    winner: str | None = None,
    hosts: int = 4,
    scale: str = "full",
    steps: int = 120,
    sweep_steps: int = 40,
    seeds: int = 3,
    budget: float | None = None,
    minutes: float = 2.0,
    no_run: bool = False,
    again: bool = False,
    cache: Path | None = None,
    json_: Annotated[Path | None, Parameter(name="--json")] = None,
    page: Path | None = None,
) -> int:
    """Minutes until the loss at which plain DDP with AdamW ends: loss curves times step seconds on slow links.

    Each contender is trained on open links, once, for as many steps as it needs; steps are timed in a lab of shaped
    links, turn by turn. Everything that was measured is kept, so parts can be done apart and interrupted.

    Parts: curves (hours of both cores; may run beside other work), bits (the first steps on a shaped link give the
    same bits), times (minutes a link and group; needs a quiet machine and root), confirm (two whole runs at 100 Mbit/s
    by the clock), every30 (loss by rounds of a job that talks every 30 steps), compose (the result of what is kept;
    always done).

    Examples:
      trainingkit bench time-to-loss --part curves --budget 60
      trainingkit bench time-to-loss --part times --links 25mbit --groups today,ours
      trainingkit bench time-to-loss --part compose --json time-to-loss.json --page time-to-loss.html
      trainingkit bench time-to-loss --hosts 2 --scale tiny --steps 40 --sweep-steps 8 --seeds 1 --only plain
      trainingkit bench time-to-loss --part curves --only "all|int4+muon(ns_steps=4),every(8)|all|int4+muon"

    Ends with 0 when every check holds, with 1 when one does not or the machine was too noisy to tell.

    Parameters
    ----------
    part
        Parts, separated by commas. Default: all.
    links
        Rates of each host's link, both ways, separated by commas.
    only
        Contenders whose curves are wanted, separated by commas. Default: the whole catalogue.
    groups
        Groups of contenders to time: today, ours, ablation, every30. Default: all.
    winner
        The contender that is judged. Default: every(4)|all|int4+muon.
    hosts
        Ranks, one process each.
    scale
        "full": a 10.8 M-parameter decoder, 8 x 256 bytes on each host. "tiny": for a try.
    steps
        The baseline's length, whose end sets the target.
    sweep_steps
        Length of the runs that choose each optimizer's rate.
    seeds
        Of the winner and the baseline; the others have one.
    budget
        Minutes after which no curve begins. Default: no limit.
    minutes
        What the turns of one link and group may take beyond five of each contender.
    no_run
        Measure nothing: compose what is kept, and list what is missing.
    again
        Time even what is kept.
    cache
        Where curves and times are kept. Default: the user's cache folder.
    json_
        Write the result there.
    page
        Write a page with plots and tables there.
    """
    from trainingkit.bench.contender import split_names
    from trainingkit.bench.timetoloss.catalogue import WINNER
    from trainingkit.bench.timetoloss.curve import default_cache
    from trainingkit.bench.timetoloss.run import PARTS, Asked, run
    from trainingkit.bench.timetoloss.spec import TimeToLossSpec
    from trainingkit.bench.timetoloss.times import GROUPS
    from trainingkit.cli.bench_progress import progress
    from trainingkit.core.section import check

    values = {"hosts": hosts, "scale": scale, "steps": steps, "sweep_steps": sweep_steps, "seeds": seeds}
    spec = check(TimeToLossSpec, {**values, "links": split_names(links), "winner": winner or WINNER})
    asked = Asked(
        parts=split_names(part) if part else PARTS,
        only=split_names(only) if only else (),
        groups=split_names(groups) if groups else tuple(GROUPS),
        budget_minutes=budget,
        minutes=minutes,
        no_run=no_run,
        again=again,
    )
    with progress() as show:
        result = run(spec, asked, cache or default_cache(), command=command_typed(), show=show)
    return conclude(result, json_, page)

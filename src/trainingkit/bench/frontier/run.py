"""The whole bench: choose, sweep, summarise."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trainingkit.bench.frontier.catalogue import catalogue
from trainingkit.bench.frontier.kept import default_cache
from trainingkit.bench.frontier.simulate import WORKERS
from trainingkit.bench.frontier.summary import summarise
from trainingkit.bench.frontier.sweep import chosen_pairs, sweep
from trainingkit.bench.network.run import Show
from trainingkit.bench.result import Result
from trainingkit.core.errors import ConfigError


def run(
    *,
    tasks: Sequence[str],
    schemes: Sequence[str] | None,
    seeds: int,
    jobs: int,
    cache: Path | None,
    steps: int | None,
    only_near: bool,
    command: str,
    show: Show = lambda glance: None,
) -> Result:
    """Do the runs that are not kept yet, and make the shared result of all.

    Args:
        schemes: names; None: on each task those that are meant for it.
        cache: None: the user's cache folder.
        steps: length of every run; None: each task's own.
        only_near: after the first seed, only schemes on or near a frontier.

    Raises:
        ConfigError: a name or a number that cannot be used.
        DataError: data that are not here and cannot be fetched.
        StepError: a process of the sweep was killed.
    """
    for name, number in (("--seeds", seeds), ("--jobs", jobs), ("--steps", steps)):
        if number is not None and number < 1:
            raise ConfigError(
                "There is nothing to do.", field=name, found=number, expected="1 or more", next_step="Raise it."
            )
    pairs = chosen_pairs(tasks, schemes)
    place = (cache or default_cache()).expanduser().absolute()
    more = {"steps": steps, "only_near": only_near, "show": show}
    runs = sweep(pairs, seeds=seeds, jobs=jobs, workers=WORKERS, cache=place, **more)
    settings = {"seeds": seeds, "only_near_frontier": only_near}
    return summarise(runs, catalogue(), workers=WORKERS, command=command, settings=settings)

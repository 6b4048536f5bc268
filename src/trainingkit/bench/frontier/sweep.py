"""All runs of a sweep, in processes of one thread each; what is kept already is not done again.

First every scheme with the first seed; then the other seeds of all schemes, or, where only those near the frontier are
asked for, of dense and of the schemes that the first seed shows on or near it.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from trainingkit.bench.cache import require_writable
from trainingkit.bench.frontier.catalogue import catalogue, scheme_of
from trainingkit.bench.frontier.gaps import gap
from trainingkit.bench.frontier.kept import Kept, path_of, read_kept, task_of, write_kept
from trainingkit.bench.frontier.pareto import Point, near
from trainingkit.bench.frontier.reference import reference_of
from trainingkit.bench.frontier.simulate import simulate
from trainingkit.bench.frontier.task import Job
from trainingkit.bench.network.run import Glance, Show
from trainingkit.cluster.launch import die_with_parent
from trainingkit.core.errors import StepError

MARGIN = {"loss": 0.5, "accuracy": 0.5}
"""How far behind the frontier a scheme still is near it: per cent of the loss, points of accuracy."""


@dataclass(frozen=True)
class Wanted:
    """One run to do.

    Attributes:
        task, scheme: names.
        cache: where runs, data and weights are kept.
        steps: length of the run; None: the task's own.
    """

    task: str
    scheme: str
    seed: int
    workers: int
    cache: Path
    steps: int | None = None

    @property
    def path(self) -> Path:
        """Where it is kept."""
        return path_of(
            self.cache, self.task, task_of(self.task, self.steps), scheme_of(self.scheme), self.seed, self.workers
        )


def sweep(
    pairs: Sequence[tuple[str, str]],
    *,
    seeds: int,
    jobs: int,
    workers: int,
    cache: Path,
    steps: int | None = None,
    only_near: bool = False,
    show: Show = lambda glance: None,
) -> list[Kept]:
    """Do what is not kept yet; all runs that were asked for.

    Args:
        pairs: (task, scheme) names; the dense runs that they are compared with are added.
        seeds: how many, from 0 on.
        jobs: processes at a time.
        steps: length of every run; None: each task's own.
        only_near: give only schemes on or near the frontier of the first seed the others, too.
        show: called when a run is done.

    Raises:
        ConfigError: there is no such task, or the cache cannot be written.
        DataError: a task's data are not here and cannot be fetched.
        StepError: a process of the sweep was killed.
    """
    require_writable(cache)
    every = list(dict.fromkeys([*((task, reference_of(scheme_of(name)).name) for task, name in pairs), *pairs]))
    first = _done([Wanted(*pair, 0, workers, cache, steps) for pair in every], jobs, "first seed", show)
    chosen = _near(first) if only_near else set(every)
    left = [pair for pair in every if pair in chosen]
    further = [Wanted(*pair, seed, workers, cache, steps) for seed in range(1, seeds) for pair in left]
    return first + _done(further, jobs, "further seeds", show)


def chosen_pairs(tasks: Sequence[str], schemes: Sequence[str] | None) -> list[tuple[str, str]]:
    """The (task, scheme) pairs that a person asked for; without names, each scheme on the tasks it is meant for.

    Raises:
        ConfigError: there is no task or scheme of a name.
    """
    for task in tasks:
        task_of(task)
    if schemes is None:
        return [(task, name) for task in tasks for name, scheme in catalogue().items() if task in scheme.tasks]
    return [(task, scheme_of(name).name) for task in tasks for name in schemes]


def run_one(wanted: Wanted) -> Kept:
    """Do one run in this process, on one thread, and keep it."""
    task = task_of(wanted.task, wanted.steps)
    job = _opened(wanted.task, wanted.cache, wanted.steps)
    begin_s = time.process_time()
    outcome = simulate(task, job, scheme_of(wanted.scheme), seed=wanted.seed, workers=wanted.workers)
    about = {"task": wanted.task, "scheme": wanted.scheme, "seed": wanted.seed}
    data = {"settings": task.model_dump(), "facts": job.facts, "torch": version("torch")}
    kept = Kept(**about, **data, seconds=time.process_time() - begin_s, **vars(outcome))
    write_kept(wanted.path, kept)
    return kept


def _done(runs: Sequence[Wanted], jobs: int, part: str, show: Show) -> list[Kept]:
    """The runs in the order given. Data are fetched once, before the processes want them."""
    kept = {run: found for run in runs if (found := read_kept(run.path)) is not None}
    left = [run for run in runs if run not in kept]
    for task in dict.fromkeys(run.task for run in left):
        task_of(task).open(runs[0].cache)
    if left:
        kept |= _in_processes(left, jobs, _Pace(part, len(left), show))
    return [kept[run] for run in runs]


def _in_processes(runs: Sequence[Wanted], jobs: int, pace: _Pace) -> dict[Wanted, Kept]:
    """Do all of them. After an error or an interrupt those under way are ended, and what is kept stays."""
    others = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(max_workers=jobs, mp_context=context, initializer=_set_up, initargs=(os.getpid(),))
    try:
        return _collected({pool.submit(run_one, run): run for run in runs}, pace)
    except BaseException as error:
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()
        if isinstance(error, BrokenProcessPool):
            raise _killed(error) from error
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _collected(pending: dict[Future[Kept], Wanted], pace: _Pace) -> dict[Wanted, Kept]:
    """The runs, told as they are done."""
    kept: dict[Wanted, Kept] = {}
    while pending:
        for future in wait(pending, return_when=FIRST_COMPLETED).done:
            run = pending.pop(future)
            kept[run] = future.result()
            pace.tell(kept[run])
    return kept


def _killed(error: BrokenProcessPool) -> StepError:
    return StepError(
        "A process of the sweep was killed.",
        found=str(error).splitlines()[0],
        expected="memory for the runs of --jobs processes, about 2 GB each",
        next_step="Run the command again: runs that were done are kept. Lower --jobs if memory is short.",
    )


class _Pace:
    """Tells how far a part is, by the runs that are done."""

    def __init__(self, part: str, runs: int, show: Show) -> None:
        self._part, self._runs, self._show = part, runs, show
        self._begin_s = time.monotonic()
        self._done = 0
        show(Glance(part, f"{runs} runs", 0.0, None))

    def tell(self, kept: Kept) -> None:
        self._done += 1
        left_s = (time.monotonic() - self._begin_s) / self._done * (self._runs - self._done)
        figure = "diverged" if kept.value is None else f"{kept.value:.4g}"
        text = f"{kept.task} {kept.scheme} seed {kept.seed}: {figure} at {kept.bits:.3g} bits"
        self._show(Glance(self._part, kept.scheme, self._done / self._runs, left_s, text))


def _near(first: Sequence[Kept]) -> set[tuple[str, str]]:
    """References, and pairs near the frontier; a scheme that is near it in one task goes on in all of its tasks."""
    names = {reference_of(scheme_of(run.scheme)).name for run in first}
    for task in {run.task for run in first}:
        names |= near(points_of([run for run in first if run.task == task]), MARGIN[task_of(task).metric])
    return {(run.task, run.scheme) for run in first if run.scheme in names}


def points_of(runs: Sequence[Kept]) -> list[Point]:
    """Bits and gap of each scheme, of runs of one task with one seed; those that diverged are left out."""
    values = {run.scheme: run.value for run in runs}
    points = []
    for run in runs:
        found = gap(task_of(run.task).metric, run.value, values[reference_of(scheme_of(run.scheme)).name])
        points += [] if found is None else [Point(run.scheme, run.bits, found)]
    return points


@functools.cache
def _opened(task: str, cache: Path, steps: int | None) -> Job:
    return task_of(task, steps).open(cache)


def _set_up(parent: int) -> None:
    """One thread, no bars, and no life of its own: a sweep that is killed leaves no process."""
    die_with_parent()
    if os.getppid() != parent:
        os._exit(1)
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    import torch
    from transformers.utils import logging

    torch.set_num_threads(1)
    logging.disable_progress_bar()

"""The pool: up to eight worker processes, started when first needed and reused by all multi-process tests."""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from ranks.errors import DeadlineExpired, Ending, RankFailed
from ranks.faults import Fault
from ranks.job import STACKS, Job
from ranks.processes import LEAVE_S, Worker, Zygote

LIMIT = 8
GROUP_SLACK_S = 30.0
PRELOAD = ("torch", "torch.distributed", "torch._dynamo", "torch.distributed.checkpoint", "torch.nn.parallel")


class Pool:
    """Runs a function on several ranks. One pool serves a pytest session; nothing starts before the first run.

    Args:
        preload: modules that workers find imported; what is slow to import and often used.
    """

    def __init__(self, preload: Sequence[str] = PRELOAD) -> None:
        self._preload = preload
        self._zygote: Zygote | None = None
        self._idle: list[Worker] = []
        self._folder: Path | None = None
        self._runs = 0

    def run(
        self,
        function: Callable[..., Any],
        world_size: int,
        *args: Any,
        deadline_s: float = 60.0,
        grace_s: float = 5.0,
        faults: Iterable[Fault] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> list[Any]:
        """Call `function(context, *args)` on each of `world_size` ranks; the results by rank.

        Args:
            function: defined at module level; each worker imports it by module and name.
            args: the same for all ranks; pickled, like the results.
            deadline_s: for the whole run. The default group times out later, so that the deadline speaks first.
            grace_s: after the first failure, how long the other ranks may take to come back.
            faults: see `ranks.faults`; they strike where the function calls `context.at_step(step)`.
            env: environment variables for this run only.

        Raises:
            RankFailed: a rank raised or died.
            DeadlineExpired: some ranks did not come back in time.
        """
        name = f"{function.__module__}.{function.__qualname__}"
        if "<" in name:
            raise ValueError(f"{name} cannot be imported by a worker: define it at module level")
        if not 1 <= world_size <= LIMIT:
            raise ValueError(f"world_size is {world_size}; the pool has 1 to {LIMIT} ranks")
        folder = self._new_folder()
        first = Job(
            call=(function.__module__, function.__qualname__),
            args=pickle.dumps(args),
            rank=0,
            world_size=world_size,
            folder=folder,
            stacks=folder / "stacks-0",
            faults=tuple(faults or ()),
            env=dict(env or {}),
            path=list(sys.path),
            timeout_s=deadline_s + GROUP_SLACK_S,
        )
        jobs = [replace(first, rank=rank, stacks=folder / f"stacks-{rank}") for rank in range(world_size)]
        workers = [self._worker() for _ in range(world_size)]
        run = _Run(name, workers, [job.stacks for job in jobs], deadline_s, grace_s)
        try:
            results = run.collect(jobs)
        except BaseException:
            run.end_all()
            raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        self._idle += workers
        return results

    def close(self) -> None:
        """End every process and remove every file of the pool. A later run starts afresh."""
        _end_together(self._idle)
        self._idle = []
        if self._zygote is not None:
            self._zygote.close()
            self._zygote = None
            atexit.unregister(self.close)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def pids(self) -> list[int]:
        """Process ids of the idle workers, in the order in which the next run takes them."""
        return [worker.pid for worker in reversed(self._idle)]

    def _worker(self) -> Worker:
        while self._idle:
            worker = self._idle.pop()
            if not worker.has_ended():
                return worker
            worker.end()
        if self._zygote is None:
            self._zygote = Zygote(self._preload)
            atexit.register(self.close)
        return self._zygote.fork()

    def _new_folder(self) -> Path:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="ranks-"))
        self._runs += 1
        folder = self._folder / str(self._runs)
        (folder / "tmp").mkdir(parents=True)
        return folder


def _end_together(workers: list[Worker]) -> None:
    for worker in workers:
        worker.kill()
    for worker in workers:
        worker.end()


class _Run:
    """One run in progress: gathers answers until all ranks came back, one failed, or time is up."""

    def __init__(self, name: str, workers: list[Worker], stacks: list[Path], deadline_s: float, grace_s: float) -> None:
        self.name = name
        self.workers = workers
        self.stacks = stacks
        self.deadline_s = deadline_s
        self.grace_s = grace_s
        self.ending = Ending()
        self._failed: list[tuple[bool, float, int]] = []
        self._open: dict[Connection, int] = {}
        self._gone: set[int] = set()

    def collect(self, jobs: list[Job]) -> list[Any]:
        """Send the jobs, wait, release the ranks; results by rank, or an error that tells the cause."""
        end = time.monotonic() + self.deadline_s
        for rank, (worker, job) in enumerate(zip(self.workers, jobs, strict=True)):
            worker.begin(job)
            self._open[worker.connection] = rank
        while self._open:
            left = end - time.monotonic()
            ready = wait(list(self._open), max(0.0, left))
            if not ready:
                self._give_up()
                break
            for rank in [self._open[connection] for connection in self._open if connection in ready]:
                self._hear(rank)
            if self._failed:
                end = min(end, min(time_s for _, time_s, _ in self._failed) + self.grace_s)
        return self._conclude()

    def end_all(self) -> None:
        """Kill and reap every worker of the run that is still there."""
        _end_together([worker for rank, worker in enumerate(self.workers) if rank not in self._gone])
        self._gone = set(range(len(self.workers)))

    def _hear(self, rank: int) -> None:
        connection = self.workers[rank].connection
        del self._open[connection]
        try:
            kind, *rest = connection.recv()
        except (EOFError, ConnectionResetError):
            self._note_death(rank)
            return
        if kind == "ok":
            self.ending.results[rank] = pickle.loads(rest[0])
            return
        text, time_s, secondary = rest
        self.ending.failures[rank] = text
        self._failed.append((secondary, time_s, rank))

    def _note_death(self, rank: int) -> None:
        self._failed.append((False, time.monotonic(), rank))
        self._keep_output(rank)
        status = self.workers[rank].end(LEAVE_S)
        self._gone.add(rank)
        if os.WIFSIGNALED(status):
            self.ending.died[rank] = signal.Signals(os.WTERMSIG(status))
        else:
            self.ending.exited[rank] = os.waitstatus_to_exitcode(status)

    def _give_up(self) -> None:
        for rank in self._open.values():
            if self.workers[rank].stopped():
                self.ending.stopped.append(rank)
        for rank in self._open.values():
            self.ending.stuck[rank] = self.workers[rank].stacks(self.stacks[rank], STACKS)

    def _conclude(self) -> list[Any]:
        if not self._failed and not self.ending.stuck:
            for worker in self.workers:
                worker.connection.send("release")
            return [self.ending.results[rank] for rank in range(len(self.workers))]
        for rank in set(self.ending.failures) | set(self.ending.stuck):
            self._keep_output(rank)
        if not self._failed:
            raise DeadlineExpired(self.name, self.deadline_s, self.ending)
        self._failed.sort()
        self.ending.failures = {r: self.ending.failures[r] for *_, r in self._failed if r in self.ending.failures}
        raise RankFailed(self.name, self._failed[0][2], self.ending)

    def _keep_output(self, rank: int) -> None:
        with contextlib.suppress(OSError):
            self.ending.output[rank] = self.workers[rank].said()

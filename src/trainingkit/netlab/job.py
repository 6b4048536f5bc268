"""One rank on each host as one job: torchrun's environment, output line by line, a deadline, and nobody left over."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from trainingkit.cluster.threads import threads_per_worker
from trainingkit.core.errors import ClusterError
from trainingkit.netlab.plan import DEVICE, host_name
from trainingkit.netlab.process import HostProcess

if TYPE_CHECKING:
    from trainingkit.netlab.lab import Lab

LineSink = Callable[[int, str, str], None]
"""Called with (rank, "stdout" or "stderr", the line without its end)."""

READ_BYTES = 1 << 16
DRAIN_S = 2.0
TAIL_LINES = 40


@dataclass(frozen=True)
class JobSpec:
    """One job: what `Lab.launch` takes. `port` is rank 0's, for the ranks to meet."""

    argv: tuple[str, ...]
    world_size: int
    port: int
    env: Mapping[str, str]
    cwd: str | Path | None
    deadline_s: float | None
    grace_s: float


@dataclass(frozen=True)
class RankEnd:
    """How one rank ended.

    Args:
        code: its exit code, or minus the signal that ended it.
        seconds: from the job's start to its end.
    """

    rank: int
    code: int
    seconds: float
    stdout: str
    stderr: str


@dataclass(frozen=True)
class JobResult:
    """How a job ended: all ranks in order, the one that failed first, and whether the deadline ended it."""

    ends: tuple[RankEnd, ...]
    first_failed: RankEnd | None = None
    unfinished: tuple[int, ...] = ()

    def check(self) -> None:
        """Raise ClusterError unless every rank ended with 0 in time."""
        if self.unfinished:
            raise ClusterError(
                "The job did not end before its deadline; all ranks were killed.",
                field="deadline_s",
                found="still running: rank " + ", ".join(map(str, self.unfinished)),
                next_step="The last of what they wrote:\n" + "\n".join(_tail(self.ends[r]) for r in self.unfinished),
            )
        if self.first_failed is not None:
            end = self.first_failed
            raise ClusterError(
                f"Rank {end.rank} on {host_name(end.rank)} failed first, after {end.seconds:.1f} s.\n{_tail(end)}",
                field=f"rank {end.rank}",
                found=_how(end.code),
                expected="exit code 0 of every rank",
                next_step="Mend what the lines above say; the other ranks were ended because of it.",
            )


@dataclass
class _Rank:
    """A rank that runs, and what it has written."""

    rank: int
    process: HostProcess
    written: dict[str, bytearray] = field(default_factory=lambda: {"stdout": bytearray(), "stderr": bytearray()})
    begun: dict[str, bytes] = field(default_factory=lambda: {"stdout": b"", "stderr": b""})
    ended_s: float = 0.0

    def take(self, stream: str, data: bytes, on_line: LineSink | None) -> None:
        """Keep what came; pass on whole lines. No data: the stream has ended, pass on the rest."""
        self.written[stream] += data
        if on_line is None:
            return
        *lines, rest = (self.begun[stream] + data).split(b"\n")
        if not data and rest:
            lines, rest = [rest], b""
        self.begun[stream] = rest
        for line in lines:
            on_line(self.rank, stream, line.decode(errors="replace"))

    def end(self) -> RankEnd:
        """The result."""
        assert self.process.returncode is not None
        texts = {name: data.decode(errors="replace") for name, data in self.written.items()}
        return RankEnd(self.rank, self.process.returncode, self.ended_s, **texts)


def run_job(lab: Lab, job: JobSpec, on_line: LineSink | None) -> JobResult:
    """Start the ranks, follow them to their end. See `Lab.launch`."""
    watch = _Watch(job.deadline_s, job.grace_s, on_line)
    try:
        for rank in range(job.world_size):
            own = rank_variables(rank, job.world_size, lab.address(0), job.port, given=os.environ)
            env = {**os.environ, **own, **job.env}
            process = lab.run(rank, job.argv, env=env, cwd=job.cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            watch.add(_Rank(rank, process))
        return watch.follow()
    finally:
        watch.clear()


def rank_variables(
    rank: int, world_size: int, address: str, port: int, *, given: Mapping[str, str] | None = None
) -> dict[str, str]:
    """What torchrun would set for the only rank of its node, and which interface to talk through."""
    threads = (given or {}).get("OMP_NUM_THREADS") or str(threads_per_worker(world_size))
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": str(rank),
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": DEVICE,
        "NCCL_SOCKET_IFNAME": DEVICE,
        "TP_SOCKET_IFNAME": DEVICE,
        "OMP_NUM_THREADS": threads,
    }


class _Watch:
    """Follows the ranks by one selector: their pipes and their ends."""

    def __init__(self, deadline_s: float | None, grace_s: float, on_line: LineSink | None) -> None:
        self._start = time.monotonic()
        self._deadline = None if deadline_s is None else self._start + deadline_s
        self._grace_s = grace_s
        self._on_line = on_line
        self._ranks: list[_Rank] = []
        self._running: set[int] = set()
        self._files = selectors.DefaultSelector()
        self._failed: int | None = None
        self._kill_at: float | None = None
        self._unfinished: tuple[int, ...] = ()

    def add(self, rank: _Rank) -> None:
        """Follow one more rank."""
        self._ranks.append(rank)
        self._running.add(rank.rank)
        for stream in ("stdout", "stderr"):
            self._files.register(getattr(rank.process, stream), selectors.EVENT_READ, (rank, stream))
        self._files.register(rank.process, selectors.EVENT_READ, (rank, None))

    def follow(self) -> JobResult:
        """Until all have ended and all pipes are empty."""
        while self._running:
            self._turn(self._next_limit())
            self._enforce()
        until = time.monotonic() + DRAIN_S
        while self._files.get_map() and time.monotonic() < until:
            self._turn(until)
        ends = tuple(rank.end() for rank in self._ranks)
        return JobResult(ends, None if self._failed is None else ends[self._failed], self._unfinished)

    def clear(self) -> None:
        """Kill who is left, close everything; where the lab is gone, nobody is left."""
        for rank in self._ranks:
            if rank.rank in self._running:
                with contextlib.suppress(ClusterError):
                    rank.process.kill()
            rank.process.close()
        self._files.close()

    def _turn(self, limit: float | None) -> None:
        wait_s = None if limit is None else max(0.0, limit - time.monotonic())
        for key, _ in self._files.select(wait_s):
            rank, stream = key.data
            if stream is None:
                self._end(rank)
            else:
                self._read(rank, stream, key.fd)

    def _read(self, rank: _Rank, stream: str, pipe: int) -> None:
        data = os.read(pipe, READ_BYTES)
        rank.take(stream, data, self._on_line)
        if not data:
            self._files.unregister(pipe)

    def _end(self, rank: _Rank) -> None:
        self._files.unregister(rank.process)
        code = rank.process.poll()
        rank.ended_s = time.monotonic() - self._start
        self._running.discard(rank.rank)
        rank.process.kill()
        if code != 0 and self._failed is None and not self._unfinished:
            self._failed = rank.rank
            self._kill_at = time.monotonic() + self._grace_s
            self._signal_all(signal.SIGTERM)

    def _next_limit(self) -> float | None:
        limits = [limit for limit in (self._deadline, self._kill_at) if limit is not None]
        return min(limits, default=None)

    def _enforce(self) -> None:
        now = time.monotonic()
        if self._deadline is not None and now >= self._deadline and self._running:
            if self._failed is None:
                self._unfinished = tuple(sorted(self._running))
            self._deadline, self._kill_at = None, now
        if self._kill_at is not None and now >= self._kill_at:
            self._kill_at = None
            self._signal_all(signal.SIGKILL)

    def _signal_all(self, number: int) -> None:
        for rank in self._ranks:
            if rank.rank in self._running:
                rank.process.send_signal(number, group=True)


def _tail(end: RankEnd) -> str:
    text = end.stderr.strip() or end.stdout.strip() or "(it wrote nothing)"
    return "\n".join(f"  rank {end.rank} | {line}" for line in text.splitlines()[-TAIL_LINES:])


def _how(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"

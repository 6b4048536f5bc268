"""The pool's side of its processes: the zygote, and one handle for each worker."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

from ranks.polling import until

START_S = 60.0
LEAVE_S = 5.0
LOG_TAIL = 40


class Zygote:
    """Starts `ranks.zygote` and asks it for workers.

    Args:
        preload: modules that workers find imported.
    """

    def __init__(self, preload: Sequence[str]) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket = ours
        one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
        command = [sys.executable, "-m", "ranks.zygote", str(os.getpid()), str(theirs.fileno()), *preload]
        self._process = subprocess.Popen(
            command,
            pass_fds=[theirs.fileno()],
            env=os.environ | one_thread | {"PYTHONPATH": path},
            start_new_session=True,
        )
        theirs.close()
        ours.settimeout(START_S)
        if ours.recv(64) != b"ready":
            raise RuntimeError(f"the workers' parent process did not start (exit code {self._process.wait()})")

    def fork(self) -> Worker:
        """A new worker, ready for a job."""
        connection, theirs = Pipe()
        log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the worker
        try:
            socket.send_fds(self._socket, [b"fork"], [theirs.fileno(), log.fileno()])
            pid = int(self._socket.recv(64))
        finally:
            theirs.close()
        return Worker(pid, connection, log, self.status)

    def status(self, pid: int) -> int:
        """The wait status of a worker that has ended, which is then reaped."""
        self._socket.send(f"status {pid}".encode())
        return int(self._socket.recv(64))

    def close(self) -> None:
        """End all workers and the zygote."""
        self._socket.close()
        try:
            self._process.wait(LEAVE_S)
        except subprocess.TimeoutExpired:
            self._process.terminate()
            self._process.wait()


class Worker:
    """A worker process: its connection, its log, its end."""

    def __init__(self, pid: int, connection: Connection, log: Any, status: Callable[[int], int]) -> None:
        self.pid = pid
        self.connection = connection
        self._log = log
        self._log_start = 0
        self._status = status
        self._pidfd = os.pidfd_open(pid)

    def begin(self, job: object) -> None:
        """Send a job. A worker that died while idle raises OSError."""
        self._log_start = os.fstat(self._log.fileno()).st_size
        self.connection.send(job)

    def said(self) -> str:
        """The last lines written to stdout and stderr since the job began."""
        size = os.fstat(self._log.fileno()).st_size - self._log_start
        text = os.pread(self._log.fileno(), size, self._log_start).decode(errors="replace")
        return "\n".join(text.splitlines()[-LOG_TAIL:])

    def stopped(self) -> bool:
        """Whether the process is stopped by a signal."""
        stat = Path(f"/proc/{self.pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] == "T"

    def stacks(self, path: Path, number: signal.Signals) -> str:
        """Ask for the stacks of all threads (the worker writes them to `path`), continuing it if it is stopped."""
        self.signal(signal.SIGCONT)
        self.signal(number)
        seen: list[int] = []

        def settled() -> bool:
            seen.append(path.stat().st_size if path.exists() else 0)
            return len(seen) > 2 and seen[-1] > 0 and seen[-1] == seen[-3]

        with contextlib.suppress(TimeoutError):
            until(settled, deadline_s=1.0, what="the stacks")
        return path.read_text(errors="replace") if path.exists() else ""

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process if it still exists."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, number)

    def has_ended(self) -> bool:
        """Whether the process is gone (and waits to be reaped)."""
        return bool(select.select([self._pidfd], [], [], 0.0)[0])

    def end(self, patience_s: float = 0.0) -> int:
        """Give the process `patience_s` to end by itself, kill it and what it started, reap it; its wait status."""
        select.select([self._pidfd], [], [], patience_s)
        self.kill()
        return self._reap()

    def kill(self) -> None:
        """SIGKILL to the worker and to its session."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.signal(signal.SIGKILL)

    def _reap(self) -> int:
        """Reap the ended process and close what belongs to it."""
        select.select([self._pidfd], [], [])
        self.connection.close()
        self._log.close()
        os.close(self._pidfd)
        return self._status(self.pid)

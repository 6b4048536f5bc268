"""A program that runs on a host of a lab, seen from the lab's creator. Much like `subprocess.Popen`."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
from collections.abc import Callable
from typing import IO

from trainingkit.core.errors import ClusterError
from trainingkit.netlab.plan import host_name

Signaller = Callable[[int, int, bool], None]


class HostProcess:
    """One program on one host.

    Attributes:
        host: the host's number.
        pid: its number inside the lab; it means nothing outside.
        returncode: None while it runs; its exit code, or minus the signal that ended it. -9 when the lab ended first.
        stdin, stdout, stderr: binary files for what was asked to be a pipe, else None. Yours to close.
    """

    def __init__(self, host: int, pid: int, status: int, signaller: Signaller, pipes: dict[str, IO[bytes]]) -> None:
        self.host = host
        self.pid = pid
        self.returncode: int | None = None
        self.stdin = pipes.get("stdin")
        self.stdout = pipes.get("stdout")
        self.stderr = pipes.get("stderr")
        self._status: int | None = status
        self._signaller = signaller

    def fileno(self) -> int:
        """A file that becomes readable when the program ends, for `select`. Valid until `poll` has said so."""
        assert self._status is not None, "the program has ended"
        return self._status

    def poll(self) -> int | None:
        """The return code, or None while it runs."""
        return self._look(0.0)

    def wait(self, timeout_s: float | None = None) -> int:
        """Wait for its end. Returns the return code.

        Raises:
            ClusterError: it still runs after `timeout_s`.
        """
        code = self._look(timeout_s)
        if code is None:
            raise ClusterError(
                f"A program on {host_name(self.host)} still runs.",
                field="timeout_s",
                found=f"not ended after {timeout_s} s",
                next_step="Wait longer, or end it with kill().",
            )
        return code

    def send_signal(self, number: int, *, group: bool = False) -> None:
        """Send a signal to it, or to its whole process group. Nothing happens when it has ended."""
        self._signaller(self.pid, number, group)

    def kill(self) -> None:
        """SIGKILL to it and to its process group."""
        self.send_signal(signal.SIGKILL, group=True)

    def close(self) -> None:
        """Close its pipes. The program goes on."""
        for pipe in (self.stdin, self.stdout, self.stderr):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def _look(self, timeout_s: float | None) -> int | None:
        if self._status is None:
            return self.returncode
        ready, _, _ = select.select((self._status,), (), (), timeout_s)
        if ready:
            said = os.read(self._status, 64)
            self.returncode = json.loads(said) if said else -signal.SIGKILL
            os.close(self._status)
            self._status = None
        return self.returncode

    def __del__(self) -> None:
        if self._status is not None:
            os.close(self._status)

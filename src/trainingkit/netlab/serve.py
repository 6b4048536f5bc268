"""What the holder does for the lab's creator: start a program in a host, signal it, change a rate, read counters."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainingkit.core.errors import ClusterError
from trainingkit.netlab import linux, wire
from trainingkit.netlab.build import Network, shape_link
from trainingkit.netlab.plan import DEVICE, host_name
from trainingkit.netlab.relay import load_counters


class Server:
    """The loop of process 1.

    Args:
        end: the socket to the creator.
        creator: a pidfd of the creator.
    """

    def __init__(self, network: Network, end: socket.socket, creator: int) -> None:
        self._network = network
        self._end = end
        self._creator = creator
        self._running: dict[int, tuple[subprocess.Popen[bytes], int]] = {}
        self._dead_relay: int | None = None
        self._answers: dict[str, Callable[[dict[str, Any], list[int]], dict[str, Any]]] = {
            "run": self._run,
            "signal": self._signal,
            "rate": self._rate,
            "counters": self._counters,
            "relay": self._relay,
        }

    def run(self) -> None:
        """Serve until the creator closes the socket or ends."""
        wake, woken = socket.socketpair()
        for side in (wake, woken):
            side.setblocking(False)
        signal.signal(signal.SIGCHLD, _do_nothing)
        signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
        self._reap()
        while True:
            ready, _, _ = select.select((self._end, self._creator, wake), (), ())
            if self._creator in ready:
                return
            if wake in ready:
                with contextlib.suppress(BlockingIOError):
                    wake.recv(4096)
                self._reap()
            if self._end in ready and not self._answer():
                return

    def _answer(self) -> bool:
        received = wire.receive(self._end)
        if received is None:
            return False
        request, files = received
        try:
            self._check_relays()
            answer = self._answers[request["do"]](request, files)
        except ClusterError as error:
            answer = wire.pack_error(error)
        finally:
            for file in files:
                os.close(file)
        with contextlib.suppress(BrokenPipeError):
            wire.send(self._end, answer)
        return True

    def _run(self, request: dict[str, Any], files: list[int]) -> dict[str, Any]:
        stdin, stdout, stderr, status = files
        try:
            process = subprocess.Popen(
                request["argv"],
                env=request["env"],
                cwd=request["cwd"],
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                preexec_fn=self._network.hosts[request["host"]].enter,  # noqa: PLW1509 - one thread only
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise ClusterError(
                f"The program cannot be started on {host_name(request['host'])}.",
                field="argv",
                found=f"{request['argv'][0]}: {error.strerror if isinstance(error, OSError) else error}",
                expected="a program that this user may run",
                next_step="Check its name and PATH; a folder's own program needs ./ before it.",
            ) from error
        self._running[process.pid] = (process, os.dup(status))
        return {"pid": process.pid}

    def _signal(self, request: dict[str, Any], _files: list[int]) -> dict[str, Any]:
        pid = request["pid"]
        with contextlib.suppress(ProcessLookupError):
            if request["group"]:
                os.killpg(pid, request["signal"])
            elif pid in self._running:
                os.kill(pid, request["signal"])
        return {}

    def _rate(self, request: dict[str, Any], _files: list[int]) -> dict[str, Any]:
        for index in request["links"]:
            shape_link(self._network, self._network.links[index], request["rate_bps"])
        return {}

    def _counters(self, request: dict[str, Any], _files: list[int]) -> dict[str, Any]:
        with linux.inside(self._network.hosts[request["host"]].net):
            table, at_s = Path("/proc/self/net/dev").read_text(), time.monotonic()
        return {"at_s": at_s, **read_device(table, DEVICE)}

    def _relay(self, request: dict[str, Any], _files: list[int]) -> dict[str, Any]:
        found = {index: load_counters(relay.memory) for index, relay in self._network.relays.items()}
        return {str(index): dataclasses.asdict(counters) for index, counters in found.items()}

    def _reap(self) -> None:
        """Collect everybody who ended: programs, relays, and orphans, whose parent process 1 has become."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self._running:
                self._report(pid, os.waitstatus_to_exitcode(status))
            for index, relay in self._network.relays.items():
                if relay.pid == pid:
                    self._dead_relay = index

    def _report(self, pid: int, code: int) -> None:
        process, status = self._running.pop(pid)
        process.returncode = code
        with contextlib.suppress(BrokenPipeError):
            os.write(status, json.dumps(code).encode())
        os.close(status)

    def _check_relays(self) -> None:
        if self._dead_relay is not None:
            raise ClusterError(
                "A relay, which adds delay and loss to a link, has died; the link is cut.",
                field="relay",
                found=f"link {self._network.links[self._dead_relay].far}",
                next_step="Look at its traceback above; make the lab anew.",
            )


def read_device(table: str, device: str) -> dict[str, Any]:
    """One device's line of /proc/net/dev, by the names of `Counters`. Raises ClusterError."""
    for line in table.splitlines():
        name, colon, figures = line.partition(":")
        if colon and name.strip() == device:
            values = [int(figure) for figure in figures.split()]
            received, sent = values[:8], values[8:]
            return {
                "sent_bytes": sent[0],
                "received_bytes": received[0],
                "sent_packets": sent[1],
                "received_packets": received[1],
                "sent_dropped": sent[3],
                "received_dropped": received[3],
            }
    raise ClusterError(
        "A host has lost its network device.",
        field=device,
        found="not in /proc/net/dev",
        next_step="Make the lab anew; a program in it has removed the device.",
    )


def _do_nothing(_number: int, _frame: Any) -> None:
    """A handler must exist, or the signal wakes nobody."""

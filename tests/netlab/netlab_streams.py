"""TCP streams that go on, and rates read from the hosts' own interface counters."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence

from trainingkit.netlab import HostProcess, Lab
from trainingkit.netlab.measure import TRANSFER

DEADLINE_S = 20.0


def start_stream(lab: Lab, source: int, target: int, port: int) -> tuple[HostProcess, HostProcess]:
    """Send from source to target as fast as TCP goes, until both are killed."""
    script = [sys.executable, "-I", "-S", str(TRANSFER)]
    receiver = lab.run(target, [*script, "receive", str(port), "0", "60", "0"], stdout=subprocess.PIPE)
    assert receiver.stdout is not None
    assert receiver.stdout.readline() == b"ready\n"
    sender = lab.run(source, [*script, "send", lab.address(target), str(port), "0"], stdout=subprocess.DEVNULL)
    return receiver, sender


def end_stream(stream: tuple[HostProcess, HostProcess]) -> None:
    """Kill both sides."""
    for process in stream:
        process.kill()
        process.wait(DEADLINE_S)
        process.close()


def received_bps(lab: Lab, hosts: Sequence[int], n_bytes: int) -> float:
    """Bits per second that reach the hosts together, over the next `n_bytes`."""
    begin, start = _received(lab, hosts), time.monotonic()
    while (got := _received(lab, hosts) - begin) < n_bytes:
        assert time.monotonic() - start < DEADLINE_S, f"only {got} of {n_bytes} bytes came"
    return 8 * got / (time.monotonic() - start)


def wait_for_bytes(lab: Lab, host: int, n_bytes: int) -> None:
    """Until a host has received so much since the lab began."""
    start = time.monotonic()
    while _received(lab, [host]) < n_bytes:
        assert time.monotonic() - start < DEADLINE_S


def _received(lab: Lab, hosts: Sequence[int]) -> int:
    return sum(lab.counters(host).received_bytes for host in hosts)

"""TCP streams that go on, and rates read from the hosts' own interface counters."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from ranks import until
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
    """Bits per second that reach the hosts together, over the next `n_bytes`; by the interfaces' own counters."""
    begin_bytes, begin_s = _received(lab, hosts)

    def rate() -> float:
        now_bytes, now_s = _received(lab, hosts)
        enough = now_bytes - begin_bytes >= n_bytes
        return 8 * (now_bytes - begin_bytes) / (now_s - begin_s) if enough else 0.0

    return until(rate, deadline_s=DEADLINE_S, what=f"{n_bytes} bytes at hosts {hosts}")


def wait_for_bytes(lab: Lab, host: int, n_bytes: int) -> None:
    """Until a host has received so much more."""
    begin_bytes, _ = _received(lab, [host])
    until(lambda: _received(lab, [host])[0] - begin_bytes >= n_bytes, deadline_s=DEADLINE_S, what=f"{n_bytes} bytes")


def _received(lab: Lab, hosts: Sequence[int]) -> tuple[int, float]:
    counters = [lab.counters(host) for host in hosts]
    return sum(each.received_bytes for each in counters), sum(each.at_s for each in counters) / len(counters)

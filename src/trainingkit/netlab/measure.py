"""What the lab's links really carry: TCP payload rate and round trip from every host to every other, one at a time."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from trainingkit.core.errors import ClusterError
from trainingkit.netlab.lab import Lab
from trainingkit.netlab.process import HostProcess

TRANSFER = Path(__file__).with_name("transfer.py")
PORT = 24000
PINGS = 5
WARM_S = 0.1
WARM_ROUND_TRIPS = 8
SETTLE_S = 30.0


@dataclass(frozen=True)
class PairRate:
    """One direction of one pair: payload bits per second, and the median round trip."""

    payload_bps: float
    round_trip_s: float


@dataclass(frozen=True)
class RateMatrix:
    """`pairs[source][target]`; None on the diagonal."""

    pairs: tuple[tuple[PairRate | None, ...], ...]


def measure_pair(lab: Lab, source: int, target: int, *, seconds: float = 0.5, pings: int = PINGS) -> PairRate:
    """One TCP stream from `source` to `target`, counted at its receiver after a warm-up of a few round trips.

    Raises:
        ClusterError: a side failed, with what it wrote.
    """
    round_trip_s = 2 * (lab.spec.delay_s + lab.spec.between_delay_s)
    warm_s = WARM_S + WARM_ROUND_TRIPS * round_trip_s
    receiver = _start(lab, target, "receive", PORT, warm_s, seconds, pings)
    assert receiver.stdout is not None
    if receiver.stdout.readline() != b"ready\n":
        raise _failed(receiver)
    sender = _start(lab, source, "send", lab.address(target), PORT, pings)
    lab.wait([receiver, sender], SETTLE_S + warm_s + seconds + pings * round_trip_s)
    counted, timed = _said(receiver), _said(sender)
    return PairRate(8 * counted["n_bytes"] / max(counted["seconds"], 1e-9), timed["round_trip_s"])


def measure_rates(lab: Lab, *, seconds: float = 0.5) -> RateMatrix:
    """All pairs, one after the other. Takes about `seconds` + 0.3 s + ten round trips each."""
    rows: list[tuple[PairRate | None, ...]] = []
    for source in lab.hosts:
        pairs = [
            None if source == target else measure_pair(lab, source, target, seconds=seconds) for target in lab.hosts
        ]
        rows.append(tuple(pairs))
    return RateMatrix(tuple(rows))


def _start(lab: Lab, host: int, *arguments: object) -> HostProcess:
    argv = [sys.executable, "-I", "-S", str(TRANSFER), *map(str, arguments)]
    return lab.run(host, argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def _said(process: HostProcess) -> dict[str, float]:
    if process.returncode != 0:
        raise _failed(process)
    text = _text(process.stdout)
    process.close()
    return json.loads(text)


def _failed(process: HostProcess) -> ClusterError:
    process.kill()
    process.wait()
    text = _text(process.stderr)
    process.close()
    return ClusterError(
        "A measurement between two hosts failed.",
        field=f"host {process.host}",
        found=text.strip(),
        next_step="Try again; if it fails again, give the link less delay or loss.",
    )


def _text(pipe: IO[bytes] | None) -> str:
    assert pipe is not None
    return pipe.read().decode(errors="replace")

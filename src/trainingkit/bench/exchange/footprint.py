"""What one rank's rounds send and keep: bytes by its lanes, RAM by the kernel."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from trainingkit.codec import Codec
from trainingkit.exchange import EXCHANGES
from trainingkit.exchange.clock import StageClock
from trainingkit.exchange.lane import Lane
from trainingkit.exchange.parts import Layout, Part, Residuals, Values
from trainingkit.exchange.registry import Round

STATUS = Path("/proc/self/status")
CLEAR = Path("/proc/self/clear_refs")
_PEAK_AGAIN = "5"


@dataclass(frozen=True)
class Footprint:
    """One rank's: bytes that it sends in a step, and RAM that the exchange takes beside the gradients."""

    sent_bytes: int
    ram_bytes: int


class PeakRam:
    """The process's RAM from now on, over what it has now; `grown` is the most so far, in bytes."""

    def __init__(self) -> None:
        self._resets = False
        with contextlib.suppress(OSError):
            CLEAR.write_text(_PEAK_AGAIN, encoding="ascii")
            self._resets = True
        self._before = _status_bytes("VmRSS")

    @property
    def grown(self) -> int:
        """Where the kernel does not let us reset its mark, what has grown and is still there."""
        return _status_bytes("VmHWM" if self._resets else "VmRSS") - self._before


class Gradients:
    """Buckets of random values, the same for the same seed; not part of the footprint."""

    def __init__(self, buckets: Sequence[int], padded: Sequence[int], seed: int) -> None:
        self.buckets = [torch.zeros(size) for size in padded]
        self._sizes = buckets
        self._generator = torch.Generator().manual_seed(seed)

    def fill(self) -> None:
        """Values of a new step."""
        for bucket, size in zip(self.buckets, self._sizes, strict=True):
            bucket[:size].normal_(generator=self._generator)


def layouts(exchange: str, lanes: Sequence[Lane], codec: Codec, buckets: Sequence[int]) -> list[Layout]:
    """How the buckets are cut for this exchange."""
    seat = EXCHANGES.get(exchange).seat(lanes)
    return [Layout(size, seat.shards, codec.granule, seat.owned is not None) for size in buckets]


def build(
    exchange: str, lanes: Sequence[Lane], codec: Codec, cut: Sequence[Layout], gradients: Gradients
) -> list[Round]:
    """A round for each bucket."""
    make = EXCHANGES.get(exchange)
    clock = StageClock()
    rounds = []
    for layout, values in zip(cut, gradients.buckets, strict=True):
        part = Part(codec, layout, Values.of(values), Residuals.zeros(layout))
        rounds.append(make([part], lanes, lambda: 1.0, clock))
    return rounds


def commit(rounds: Sequence[Round]) -> None:
    """The step was taken."""
    for each in rounds:
        for part in each.parts:
            part.residuals.commit()


def _status_bytes(name: str) -> int:
    match = re.search(rf"^{name}:\s+(\d+) kB$", STATUS.read_text(encoding="ascii"), re.MULTILINE)
    assert match is not None
    return 1024 * int(match[1])

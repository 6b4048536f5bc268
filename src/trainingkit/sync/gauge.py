"""What a step costs this rank: when gradients were ready, when they were agreed, and what messages say of them."""

from __future__ import annotations

import math
import time
from typing import Any

import torch
from torch import nn

from trainingkit.exchange.clock import StageClock
from trainingkit.exchange.meter import WireMeter
from trainingkit.exchange.parts import Part
from trainingkit.sync.auto.seen import UNKNOWN, Seen
from trainingkit.sync.auto.wire import fit

SAMPLE_EVERY = 4
SAMPLE_ELEMENTS = 1 << 16


class StepGauge:
    """One step's moments. Of several forwards (accumulation, evaluation) the first with gradients counts.

    Args:
        module: what forward is called on.
        meter: of the wire.
        clock: of encoding and decoding.

    Attributes:
        ready_s: when this rank's last bucket so far was ready (`time.perf_counter`).
    """

    def __init__(self, module: nn.Module, meter: WireMeter, clock: StageClock) -> None:
        self._meter = meter
        self._clock = clock
        self._hook = module.register_forward_pre_hook(self._forward)
        self._next_s: float | None = None
        self.reset()

    def reset(self) -> None:
        """A step is over. Where nobody says so before the next forward, that one has begun already."""
        self._began_s: float | None = self._next_s
        self._next_s = None
        self._first_s: float | None = None
        self.ready_s = 0.0
        self._agreed_s = 0.0
        self._cosine = UNKNOWN
        self._kept = UNKNOWN
        self._meter.take()

    def ready(self) -> None:
        """A bucket's gradients are there."""
        self.ready_s = time.perf_counter()
        self._first_s = self._first_s or self.ready_s

    def agreed(self) -> None:
        """A bucket is back."""
        self._agreed_s = time.perf_counter()

    def sample(self, part: Part) -> None:
        """Compare what a message was to say with what it says; right after it was encoded."""
        cosine, kept = faithfulness(part)
        self._cosine = cosine if self._cosine == UNKNOWN else min(cosine, self._cosine)
        self._kept = kept if self._kept == UNKNOWN else min(kept, self._kept)

    def seen(self, *, loss: float, committed: bool) -> Seen:
        """All of it, of the step that is over."""
        if self._began_s is None or self._first_s is None:
            return Seen(committed=float(committed))
        link = fit(self._meter.take())
        hidden, exposed = self._clock.split(self.ready_s)
        return Seen(
            window_s=self.ready_s - self._began_s,
            hide_s=self.ready_s - self._first_s,
            exposed_s=max(0.0, self._agreed_s - self.ready_s),
            code_s=sum(kind[stage] for kind in (hidden, exposed) for stage in ("encode", "decode")),
            rate=link.bytes_per_s if link else UNKNOWN,
            latency_s=link.latency_s if link else UNKNOWN,
            loss=loss if math.isfinite(loss) else UNKNOWN,
            cosine=self._cosine,
            kept=self._kept,
            committed=float(committed),
        )

    def close(self) -> None:
        """Take the hook off."""
        self._hook.remove()

    def _forward(self, _module: nn.Module, _args: Any) -> None:
        if not torch.is_grad_enabled():
            return
        if self._began_s is None:
            self._began_s = time.perf_counter()
        elif self._first_s is not None and self._next_s is None:
            self._next_s = time.perf_counter()


def faithfulness(part: Part) -> tuple[float, float]:
    """Cosine between y = x + residual and what its message says, and the share of y's energy that it says.

    Args:
        part: just encoded; its values are still the input.

    Returns:
        1.0 and 1.0 where y is zero.
    """
    piece = part.values.pieces[0]
    n = min(SAMPLE_ELEMENTS, piece.tensor.numel())
    elements = slice(piece.start, piece.start + n)
    wanted = piece.tensor[:n] + part.residuals.own[elements]
    said = wanted - part.residuals.own_next[elements]
    wanted_energy, said_energy = float(wanted.dot(wanted)), float(said.dot(said))
    if not wanted_energy > 0.0 or not math.isfinite(wanted_energy):
        return 1.0, 1.0
    if not said_energy > 0.0:
        return 0.0, 0.0
    return float(wanted.dot(said)) / math.sqrt(wanted_energy * said_energy), said_energy / wanted_energy

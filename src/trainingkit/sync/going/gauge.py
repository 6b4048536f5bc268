"""What a step costs where ranks train apart: the mean over the steps of a round, and the link as its transfers show it.

The window of a step is that of `sync.gauge`: from the first forward with gradients to the last gradient. What the
training thread spends on rounds between two steps (measuring, waiting, applying) counts as exposed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from trainingkit.exchange.meter import Transfer
from trainingkit.sync.auto.seen import UNKNOWN, Seen
from trainingkit.sync.auto.wire import fit
from trainingkit.sync.contract import SyncStats

CODING = ("encode", "decode")


@dataclass
class _Sums:
    """Seconds and transfers since the last round began."""

    steps: int = 0
    window_s: float = 0.0
    exposed_s: float = 0.0
    code_s: float = 0.0
    transfers: list[Transfer] = field(default_factory=list)


class RoundGauge:
    """Adds up steps, and tells of them when a round's steps are over.

    Args:
        module: what forward is called on.
    """

    def __init__(self, module: nn.Module) -> None:
        self._handles = [module.register_forward_pre_hook(self._forward)]
        self._handles += [
            p.register_post_accumulate_grad_hook(self._ready) for p in module.parameters() if p.requires_grad
        ]
        self.restart()

    def restart(self) -> None:
        """Rounds begin with the next step."""
        self._sums = _Sums()
        self._began_s: float | None = None
        self._ready_s = 0.0

    def add(self, stats: SyncStats, spent_s: float, transfers: Sequence[Transfer]) -> None:
        """A step is over.

        Args:
            stats: of it.
            spent_s: by the training thread, in `commit` or `abort`.
            transfers: that have ended since the step before.
        """
        sums = self._sums
        if self._began_s is not None:
            sums.steps += 1
            sums.window_s += self._ready_s - self._began_s
        sums.exposed_s += spent_s
        sums.code_s += sum(kind.get(stage, 0.0) for kind in (stats.hidden, stats.exposed) for stage in CODING)
        sums.transfers += transfers
        self._began_s = None

    def seen(self, *, ends_round: bool, loss: float, committed: bool) -> Seen:
        """The step; where it ends a round's steps, with their means, coding as the seconds of the whole round.

        The link is unknown where nothing of a round has travelled yet.
        """
        seen = Seen(loss=loss if math.isfinite(loss) else UNKNOWN, committed=float(committed))
        if not ends_round:
            return seen
        sums, self._sums = self._sums, _Sums()
        if not sums.steps:
            return seen
        link = fit(sums.transfers)
        return Seen(
            window_s=sums.window_s / sums.steps,
            exposed_s=sums.exposed_s / sums.steps,
            code_s=sums.code_s,
            rate=link.bytes_per_s if link is not None else UNKNOWN,
            latency_s=link.latency_s if link is not None else UNKNOWN,
            loss=seen.loss,
            committed=seen.committed,
        )

    def close(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()

    def _forward(self, _module: nn.Module, _args: Any) -> None:
        if torch.is_grad_enabled() and self._began_s is None:
            self._began_s = time.perf_counter()

    def _ready(self, _parameter: torch.Tensor) -> None:
        self._ready_s = time.perf_counter()

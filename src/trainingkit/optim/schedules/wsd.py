"""Warm-up, stable, decay: a linear rise, the peak rate, then a decay over the last share of the run.

Hu et al., "MiniCPM" (COLM 2024); the shape 1 - sqrt and a share of 0.2 after Haegele et al., "Scaling Laws and
Compute-Optimal Training Beyond Fixed Training Durations" (NeurIPS 2024). A run that is prolonged before its decay began
is the longer run from the start, which a cosine is not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

from pydantic import Field

from trainingkit.optim.registry import SCHEDULES, ScheduleSection

Shape = Literal["sqrt", "linear"]
LEFT: dict[Shape, Callable[[float], float]] = {
    "sqrt": lambda done: 1 - math.sqrt(done),
    "linear": lambda done: 1 - done,
}
"""What is left of the way from the peak to `final`, by the share of the decay that is done."""


@SCHEDULES.register("wsd")
class WSDSection(ScheduleSection):
    """Settings of the warm-up, stable, decay schedule."""

    warmup_steps: int = Field(default=20, ge=0, description="updates of linear warm-up")
    decay_share: float = Field(default=0.2, ge=0, le=1, description="share of all updates over which the rate decays")
    decay: Shape = Field(default="sqrt", description="shape of the decay: steep first, or a straight line")
    final: float = Field(default=0.1, ge=0, le=1, description="rate at the end as a share of the peak")

    def factor(self, update: int, total: int) -> float:
        """Rises to 1, stays, and falls; the update after the last would have `final`."""
        if update < self.warmup_steps:
            return (update + 1) / self.warmup_steps
        begin = max(self.warmup_steps, total - round(self.decay_share * total))
        done = min(1.0, max(0, update - begin) / max(1, total - begin))
        return self.final + (1 - self.final) * LEFT[self.decay](done)

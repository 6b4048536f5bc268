"""Linear warm-up, then half a cosine down to `final` of the peak rate (Loshchilov & Hutter, SGDR, ICLR 2017)."""

from __future__ import annotations

import math

from pydantic import Field

from trainingkit.optim.registry import SCHEDULES, ScheduleSection


@SCHEDULES.register("cosine")
class CosineSection(ScheduleSection):
    """Settings of the cosine schedule."""

    warmup_steps: int = Field(default=20, ge=0, description="updates of linear warm-up")
    final: float = Field(default=0.1, ge=0, le=1, description="rate at the end as a share of the peak")

    def factor(self, update: int, total: int) -> float:
        """Rises to 1 at the end of the warm-up; the update after the last would have `final`."""
        if update < self.warmup_steps:
            return (update + 1) / self.warmup_steps
        left = max(1, total - self.warmup_steps)
        done = min(1.0, (update - self.warmup_steps) / left)
        return self.final + (1 - self.final) * 0.5 * (1 + math.cos(math.pi * done))

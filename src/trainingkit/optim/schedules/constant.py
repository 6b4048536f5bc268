"""Linear warm-up, then the peak rate to the end."""

from __future__ import annotations

from pydantic import Field

from trainingkit.optim.registry import SCHEDULES, ScheduleSection


@SCHEDULES.register("constant")
class ConstantSection(ScheduleSection):
    """Settings of the constant schedule."""

    warmup_steps: int = Field(default=0, ge=0, description="updates of linear warm-up")

    def factor(self, update: int, total: int) -> float:
        """Rises to 1 at the end of the warm-up and stays there."""
        return min(1.0, (update + 1) / self.warmup_steps) if self.warmup_steps else 1.0

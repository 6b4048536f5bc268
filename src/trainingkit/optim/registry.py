"""The two registries of this room, and what an entry must offer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainingkit.core.registry import Registry
from trainingkit.core.section import Section

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer


class OptimizerSection(Section):
    """An entry of OPTIMIZERS: its settings, and `build`."""

    def build(self, model: nn.Module) -> Optimizer:
        """A fresh optimizer over the model's trainable parameters; each group's `lr` is its peak rate."""
        raise NotImplementedError(type(self).__name__)


class ScheduleSection(Section):
    """An entry of SCHEDULES: its settings, and `factor`."""

    def factor(self, update: int, total: int) -> float:
        """Share of the peak rate for update number `update` (0-based) of `total`. Pure."""
        raise NotImplementedError(type(self).__name__)


OPTIMIZERS: Registry[Any] = Registry("optimizer", "trainingkit.optim.optimizers")
SCHEDULES: Registry[Any] = Registry("schedule", "trainingkit.optim.schedules")

"""The learning rate of a recipe: each group's peak rate times the schedule's factor, set before every update."""

from __future__ import annotations

from typing import Any

from torch.optim import Optimizer

from trainingkit.optim import ScheduleSection


class RecipeRate:
    """Keeps the number of updates, and the rate that belongs to the next one.

    Args:
        schedule: gives the factor for an update.
        total: updates of the whole run.
    """

    def __init__(self, optimizer: Optimizer, schedule: ScheduleSection, total: int) -> None:
        self._optimizer = optimizer
        self._schedule = schedule
        self._total = total
        self._peaks = [float(group["lr"]) for group in optimizer.param_groups]
        self._update = 0
        self._apply()

    def step(self) -> None:
        """Advance by one update."""
        self._update += 1
        self._apply()

    def state_dict(self) -> dict[str, Any]:
        """The number of updates so far and the peak rates."""
        return {"update": self._update, "peaks": self._peaks}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue after that many updates."""
        self._update = state_dict["update"]
        self._peaks = list(state_dict["peaks"])
        self._apply()

    def _apply(self) -> None:
        factor = self._schedule.factor(self._update, self._total)
        for group, peak in zip(self._optimizer.param_groups, self._peaks, strict=True):
            group["lr"] = peak * factor

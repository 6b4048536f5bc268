"""What a scoring leaves: predictions beside measurements, and figures over them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from trainingkit.planner.score.rows import Row


class Excluded(NamedTuple):
    """A row with a step time that cannot be predicted."""

    name: str
    source: str
    why: str


@dataclass(frozen=True)
class Predicted:
    """A usable row with its measurement and prediction, seconds of a step."""

    row: Row
    measured_s: float
    predicted_s: float
    low_s: float
    high_s: float
    traits: dict[str, float]

    @property
    def error(self) -> float:
        """Signed relative error of the prediction."""
        return self.predicted_s / self.measured_s - 1.0


@dataclass(frozen=True)
class MemoryRow:
    """Peak memory of a row. `measured_gib` is None where it ran out of memory, or where only that it ran is known."""

    row: Row
    measured_gib: float | None
    predicted_gib: float
    high_gib: float
    capacity_gib: float
    oom: bool

    @property
    def fits(self) -> bool:
        """Whether the planner would have called it a fit."""
        return self.high_gib <= self.capacity_gib


@dataclass(frozen=True)
class Score:
    """All that a scoring found; `checks` by the names of the bench."""

    checks: dict[str, float]
    sources: list[dict[str, Any]]
    excluded: list[Excluded]
    predictions: list[Predicted]
    memory: list[MemoryRow]
    facts: dict[str, Any] = field(default_factory=dict)

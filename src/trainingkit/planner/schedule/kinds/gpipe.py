"""GPipe (Huang et al. 2019): all forwards, then all backwards. Bubble (p-1)/(m+p-1); holds all micro-batches."""

from __future__ import annotations

from trainingkit.planner.schedule.registry import SCHEDULES, Shape, Work


class GPipe:
    """Forward first."""

    splits = False
    folded = False
    needs_chunks = False

    def order(self, shape: Shape, stage: int) -> list[Work]:
        """F 0 .. m-1, then B 0 .. m-1."""
        del stage
        return [Work(kind, micro, 0) for kind in "FB" for micro in range(shape.micros)]

    def held(self, shape: Shape, stage: int) -> float:
        """All of them."""
        del stage
        return float(shape.micros)

    def legal(self, shape: Shape) -> bool:
        """Any shape with one chunk."""
        return shape.chunks == 1


SCHEDULES.register("gpipe")(GPipe())

"""1F1B (PipeDream-Flush; Narayanan et al. 2021): one forward, one backward. Bubble (p-1)/(m+p-1); stage i holds p-i."""

from __future__ import annotations

from trainingkit.planner.schedule.registry import SCHEDULES, Shape, Work


class OneForwardOneBackward:
    """Warm up with p - i - 1 forwards, alternate, drain."""

    splits = False
    folded = False
    needs_chunks = False

    def order(self, shape: Shape, stage: int) -> list[Work]:
        """Warm-up, steady state, cool-down."""
        m = shape.micros
        warm = min(m, shape.stages - stage - 1)
        found = [Work("F", micro, 0) for micro in range(warm)]
        for micro in range(warm, m):
            found += [Work("F", micro, 0), Work("B", micro - warm, 0)]
        return found + [Work("B", micro, 0) for micro in range(m - warm, m)]

    def held(self, shape: Shape, stage: int) -> float:
        """As many as there are stages from here on."""
        return float(min(shape.micros, shape.stages - stage))

    def legal(self, shape: Shape) -> bool:
        """Any shape with one chunk."""
        return shape.chunks == 1


SCHEDULES.register("1f1b")(OneForwardOneBackward())

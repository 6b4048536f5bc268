"""ZB-H1 (Qi et al. 2023, "Zero Bubble Pipeline Parallelism"): backward for weights fills what 1F1B leaves idle.

Memory as in 1F1B. The order per stage is 1F1B's, with the weights' part of micro-batch j put off by as many
micro-batches as the stage is far from the first, so that it falls into the drain.
"""

from __future__ import annotations

from trainingkit.planner.schedule.registry import SCHEDULES, Shape, Work


class ZeroBubbleH1:
    """1F1B with B and W apart."""

    splits = True
    folded = False
    needs_chunks = False

    def order(self, shape: Shape, stage: int) -> list[Work]:
        """As 1F1B; W of micro-batch j after B of micro-batch j + stage."""
        m = shape.micros
        warm = min(m, shape.stages - stage - 1)
        found = [Work("F", micro, 0) for micro in range(warm)]
        done = 0
        for micro in range(m):
            if micro + warm < m:
                found.append(Work("F", micro + warm, 0))
            found.append(Work("B", micro, 0))
            if micro >= stage:
                found.append(Work("W", done, 0))
                done += 1
        return found + [Work("W", micro, 0) for micro in range(done, m)]

    def held(self, shape: Shape, stage: int) -> float:
        """As 1F1B: what waits for W is what later stages hold less."""
        del stage
        return float(min(shape.micros, shape.stages))

    def legal(self, shape: Shape) -> bool:
        """Any shape with one chunk."""
        return shape.chunks == 1


SCHEDULES.register("zb-h1")(ZeroBubbleH1())

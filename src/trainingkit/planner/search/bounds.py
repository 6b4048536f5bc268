"""A step cannot be faster than this: sound lower bounds, which decide what need not be looked at.

Stage s cannot begin before the first micro-batch has come through the stages before it, works off all micro-batches,
and after its last backward the stages before it have theirs to do. For equal stages this is 1F1B's closed form, and
interleaved 1F1B's, so little has to be simulated. With backward in two pieces the last piece may be the weights' one,
after which nothing follows.
"""

from __future__ import annotations

from trainingkit.planner.schedule import SCHEDULES, PipeCosts


def pipe_bound_s(schedule: str, costs: PipeCosts, micros: int) -> float:
    """No run of `micros` micro-batches under `schedule` ends sooner."""
    splits = SCHEDULES.get(schedule).splits
    head, best = 0.0, 0.0
    tails = [0.0] * costs.chunks
    for stage in range(costs.stages):
        tail = 0.0 if splits else min(tails)
        best = max(best, head + micros * costs.busy_s(stage) + tail)
        head += costs.forward_s[stage][0] + costs.send_s
        tails = [t + b + costs.send_s for t, b in zip(tails, costs.backward_s[stage], strict=True)]
    return best

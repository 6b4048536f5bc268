"""Seconds from the first forward to the last backward; long pipelines by their steady state.

After the pipeline has filled, each further group of p micro-batches takes the same time, so few micro-batches are
simulated and the rest is added. Where all stages are alike the textbook's closed form is exact and is used.
"""

from __future__ import annotations

from functools import lru_cache

from trainingkit.planner.schedule.engine import coded_orders, starts
from trainingkit.planner.schedule.registry import Shape
from trainingkit.planner.schedule.simulate import PipeCosts

SETTLED = {1: 3, 2: 4}
"""Groups of p micro-batches after which the steady state is reached, for one chunk and for more. With stages as uneven
as 1 to 30 interleaving settles later, and the result is then up to 3 % off."""


@lru_cache(maxsize=20_000)
def makespan(schedule: str, costs: PipeCosts, micros: int) -> float:
    """Seconds of `micros` micro-batches under `schedule`."""
    if costs.stages == 1:
        return micros * costs.busy_s(0)
    closed = _closed(schedule, costs, micros)
    if closed is not None:
        return closed
    stages = costs.stages
    few = SETTLED[min(2, costs.chunks)] * stages + micros % stages
    if micros <= few + stages:
        return _simulated(schedule, costs, micros)
    one, two = (_simulated(schedule, costs, count) for count in (few, few + stages))
    return two + (micros - few - stages) / stages * (two - one)


def _closed(schedule: str, costs: PipeCosts, micros: int) -> float | None:
    """(m + p - 1) (F + B) for 1F1B and GPipe on equal stages without messages."""
    alike = len(set(costs.forward_s)) == 1 and len(set(costs.backward_s)) == 1
    if schedule not in ("1f1b", "gpipe") or not alike or costs.send_s:
        return None
    return (micros + costs.stages - 1) * costs.busy_s(0)


def _simulated(schedule: str, costs: PipeCosts, micros: int) -> float:
    """The end of the last piece; the last of each stage ends it."""
    shape = Shape(costs.stages, micros, costs.chunks)
    seconds = (costs.forward_s, costs.backward_s, costs.weight_s)
    found = starts(schedule, shape, seconds, costs.send_s)
    orders = coded_orders(schedule, shape)
    lasts = ((line[-1], stage, orders[stage][-1]) for stage, line in enumerate(found))
    return max(start + seconds[work[0]][stage][work[1] % costs.chunks] for start, stage, work in lasts)

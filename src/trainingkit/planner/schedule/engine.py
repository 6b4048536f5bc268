"""The event engine: start times of all work of all stages, from plain lists, for speed.

Work is coded once per schedule and shape: (kind, slot, stage that is waited for or -1, its kind, its slot), where a
slot is `micro * chunks + chunk` and kinds are 0 forward, 1 backward, 2 weights.
"""

from __future__ import annotations

from functools import lru_cache

from trainingkit.planner.schedule.needs import folded_needs, needs
from trainingkit.planner.schedule.registry import SCHEDULES, Shape, Work

Coded = tuple[int, int, int, int, int]
KINDS = "FBW"


@lru_cache(maxsize=256)
def coded_orders(schedule: str, shape: Shape) -> tuple[tuple[Coded, ...], ...]:
    """The work of all stages, in their order."""
    entry = SCHEDULES.get(schedule, field="schedule")
    return tuple(
        tuple(_code(shape, stage, work, entry.folded) for work in entry.order(shape, stage))
        for stage in range(shape.stages)
    )


def _code(shape: Shape, stage: int, work: Work, folded: bool) -> Coded:
    need = folded_needs(shape, stage, work) if folded else needs(shape, stage, work)
    own = KINDS.index(work.kind), work.micro * shape.chunks + work.chunk
    if need is None:
        return (*own, -1, 0, 0)
    where, other = need
    return (*own, where, KINDS.index(other.kind), other.micro * shape.chunks + other.chunk)


Seconds = tuple[tuple[float, ...], ...]


def starts(schedule: str, shape: Shape, seconds: tuple[Seconds, Seconds, Seconds], send_s: float) -> list[list[float]]:
    """Start times by stage, in the order of its work.

    Args:
        seconds: forward, backward, weights; each by stage and chunk.
        send_s: from the end of a piece to when another stage can use it.
    """
    orders = coded_orders(schedule, shape)
    slots, chunks = shape.micros * shape.chunks, shape.chunks
    ends = [[[-1.0] * slots for _ in KINDS] for _ in orders]
    found: list[list[float]] = [[] for _ in orders]
    clocks, waiting = [0.0] * len(orders), list(range(len(orders)))
    while waiting:
        moved = False
        for stage in waiting:
            order, begun, own, clock = orders[stage], found[stage], ends[stage], clocks[stage]
            while len(begun) < len(order):
                kind, slot, where, need, other = order[len(begun)]
                start = clock
                if where >= 0:
                    ready = ends[where][need][other]
                    if ready < 0:
                        break
                    ready += send_s if where != stage else 0.0
                    start = max(clock, ready)
                begun.append(start)
                clock = start + seconds[kind][stage][slot % chunks]
                own[kind][slot] = clock
                moved = True
            clocks[stage] = clock
        waiting = [stage for stage in waiting if len(found[stage]) < len(orders[stage])]
        assert moved, f"schedule {schedule} waits for itself"
    return found

"""ZB-V (Qi et al. 2024, "Pipeline Parallelism with Controllable Memory"): two chunks per stage, folded like a V.

Chunk 0 runs from the first stage to the last, chunk 1 back to the first, which so has the embedding and the head. With
backward in two pieces and 1F1B's memory there is nearly no bubble. The order is greedy on unit times: backward for
inputs when it is there, else forward (the way back first), else a weight piece; memory full means weights first.
Costs about 6 m ticks for each stage, once per shape.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from trainingkit.planner.schedule.needs import folded_needs
from trainingkit.planner.schedule.registry import SCHEDULES, Shape, Work


class ZeroBubbleV:
    """Two chunks, folded, backward in two pieces."""

    splits = True
    folded = True
    needs_chunks = True

    def order(self, shape: Shape, stage: int) -> list[Work]:
        """The greedy order of one stage."""
        return list(_orders(shape)[stage])

    def held(self, shape: Shape, stage: int) -> float:
        """2 p chunks, which are p whole stages."""
        del stage
        return float(min(shape.micros, shape.stages))

    def legal(self, shape: Shape) -> bool:
        """Two chunks on two stages or more."""
        return shape.chunks == 2 and shape.stages > 1


@dataclass
class _Stage:
    """Where one stage is: pieces done by (kind, chunk), weight pieces that wait, activations that are held."""

    done: dict[tuple[str, int], int] = field(default_factory=lambda: {(k, c): 0 for k in "FB" for c in (0, 1)})
    weights: list[Work] = field(default_factory=list)
    live: int = 0
    order: list[Work] = field(default_factory=list)


@lru_cache(maxsize=256)
def _orders(shape: Shape) -> tuple[tuple[Work, ...], ...]:
    p, m = shape.stages, shape.micros
    stages = [_Stage() for _ in range(p)]
    ended: set[tuple[int, Work]] = set()
    while any(len(stage.order) < 6 * m for stage in stages):
        taken = [(place, work) for place in range(p) if (work := _choose(shape, place, stages[place], ended))]
        assert taken, "the greedy order waits for itself"
        for place, work in taken:
            _take(stages[place], work)
            ended.add((place, work))
    return tuple(tuple(stage.order) for stage in stages)


def _choose(shape: Shape, place: int, stage: _Stage, ended: set[tuple[int, Work]]) -> Work | None:
    """The piece that a stage takes in this tick, or None."""
    full = stage.live >= 2 * shape.stages - 1
    for kind, chunk in (("B", 0), ("B", 1), ("F", 1), ("F", 0)):
        work = Work(kind, stage.done[kind, chunk], chunk)
        if work.micro == shape.micros or (kind == "F" and chunk == 0 and full):
            continue
        need = folded_needs(shape, place, work)
        if need is None or need in ended:
            return stage.weights[0] if kind == "F" and full and stage.weights else work
    return stage.weights[0] if stage.weights else None


def _take(stage: _Stage, work: Work) -> None:
    stage.order.append(work)
    if work.kind == "W":
        stage.weights.pop(0)
        stage.live -= 1
        return
    stage.done[work.kind, work.chunk] += 1
    if work.kind == "F":
        stage.live += 1
    else:
        stage.weights.append(Work("W", work.micro, work.chunk))


SCHEDULES.register("zb-v")(ZeroBubbleV())

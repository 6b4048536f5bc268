"""Event simulation of a pipeline: each stage takes its work in the schedule's order, as soon as what it needs is there.

Forward of a chunk needs forward of the chunk before it, backward needs backward of the chunk after it; a message
between two stages takes `send_s`. Costs stages * micro-batches * chunks * 2 events.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainingkit.planner.schedule.engine import Seconds, starts
from trainingkit.planner.schedule.registry import SCHEDULES, Shape, Work


@dataclass(frozen=True)
class PipeCosts:
    """Seconds by stage and chunk: `forward_s[stage][chunk]`. `weight_s` is 0 where backward is one piece."""

    forward_s: Seconds
    backward_s: Seconds
    weight_s: Seconds
    send_s: float = 0.0

    @property
    def stages(self) -> int:
        """Stages."""
        return len(self.forward_s)

    @property
    def chunks(self) -> int:
        """Chunks per stage."""
        return len(self.forward_s[0])

    def of(self, stage: int, work: Work) -> float:
        """Seconds of one piece."""
        table = {"F": self.forward_s, "B": self.backward_s, "W": self.weight_s}[work.kind]
        return table[stage][work.chunk]

    def busy_s(self, stage: int) -> float:
        """Seconds of work of one micro-batch on one stage."""
        return sum(self.forward_s[stage]) + sum(self.backward_s[stage]) + sum(self.weight_s[stage])


@dataclass(frozen=True)
class Event:
    """One piece of work on one stage, with its start and end in seconds."""

    stage: int
    work: Work
    start_s: float
    end_s: float


def simulate(schedule: str, costs: PipeCosts, micros: int) -> list[Event]:
    """All events, by stage in the order of work.

    Raises:
        ConfigError: no such schedule.
    """
    entry = SCHEDULES.get(schedule, field="schedule")
    shape = Shape(costs.stages, micros, costs.chunks)
    found = starts(schedule, shape, (costs.forward_s, costs.backward_s, costs.weight_s), costs.send_s)
    return [
        Event(stage, work, start, start + costs.of(stage, work))
        for stage, line in enumerate(found)
        for work, start in zip(entry.order(shape, stage), line, strict=True)
    ]

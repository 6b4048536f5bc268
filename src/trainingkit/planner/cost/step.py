"""The seconds of one optimizer step: pipeline, exchange among replicas, update, and the slowest of many devices."""

from __future__ import annotations

import math
from dataclasses import dataclass

from trainingkit.planner.cluster.spec import Cluster
from trainingkit.planner.cost.stages import pipe_costs
from trainingkit.planner.cost.update import SHARED_SLOWDOWN, exchange, sharded_seconds
from trainingkit.planner.layout import Job, Layout
from trainingkit.planner.models import Transformer
from trainingkit.planner.schedule import PipeCosts, makespan

DEVICE_SPREAD = 0.012
"""Relative spread of devices' speed; all wait for the slowest of them (cards of one kind differ by some per cent)."""

FLAT_ALONE = 0.25
"""Share of the shorter of work and gathers that the longer one does not hide, where gathers go tensor by tensor."""


@dataclass(frozen=True)
class StepTime:
    """A step's seconds and what they are made of; the parts add up to `step_s`.

    Args:
        busy_s: the busiest stage at work, with the exchange inside layers.
        bubble_s: waiting for other stages.
        exchange_s: gradients and parameters among replicas, as far as nothing hides them.
        update_s: the optimizer.
        straggle_s: waiting for the slowest device.
    """

    busy_s: float
    bubble_s: float
    exchange_s: float
    update_s: float
    straggle_s: float

    @property
    def step_s(self) -> float:
        """Seconds of a step."""
        return self.busy_s + self.bubble_s + self.exchange_s + self.update_s + self.straggle_s


def straggle_share(devices: int) -> float:
    """Expected excess of the slowest of so many devices, as a share."""
    return DEVICE_SPREAD * math.sqrt(2 * math.log(devices)) if devices > 1 else 0.0


def predict(job: Job, cluster: Cluster, layout: Layout) -> StepTime:
    """Seconds of a step."""
    micros = layout.micro_batches(job.global_batch)
    costs = with_sharding(job, cluster, layout, pipe_costs(job, cluster, layout))
    return assemble(job, cluster, layout, costs, makespan(layout.schedule, costs, micros))


def assemble(job: Job, cluster: Cluster, layout: Layout, costs: PipeCosts, pipe_s: float) -> StepTime:
    """A step around a pipeline that takes `pipe_s`."""
    micros = layout.micro_batches(job.global_batch)
    busy = min(pipe_s, micros * max(costs.busy_s(stage) for stage in range(costs.stages)))
    last_backward = max(sum(costs.backward_s[stage]) + sum(costs.weight_s[stage]) for stage in range(costs.stages))
    moved = exchange(job, cluster, layout, last_backward)
    straggle = straggle_share(layout.devices) * pipe_s
    return StepTime(busy, pipe_s - busy, moved.exposed_s, moved.update_s, straggle)


def with_sharding(job: Job, cluster: Cluster, layout: Layout, costs: PipeCosts) -> PipeCosts:
    """The costs with parameters gathered for each pass: a pass takes as long as the longer of work and exchange."""
    if layout.shard < 3 or not isinstance(job.model, Transformer):
        return costs
    beside_f, beside_b = sharded_seconds(job, cluster, layout)
    first = 1.0 / max(1, job.model.layers)
    alone = FLAT_ALONE if job.software.flat_gathers else first
    forward = tuple(tuple(_beside(x, beside_f / layout.virtual, alone) for x in line) for line in costs.forward_s)
    backward = tuple(tuple(_beside(x, beside_b / layout.virtual, alone) for x in line) for line in costs.backward_s)
    return PipeCosts(forward, backward, costs.weight_s, costs.send_s)


def _beside(work_s: float, exchange_s: float, alone: float) -> float:
    slowed = work_s + SHARED_SLOWDOWN * min(work_s, exchange_s)
    return max(slowed, exchange_s) + alone * min(work_s, exchange_s)

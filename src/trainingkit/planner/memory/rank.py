"""Memory of one rank by stage: weights, gradients, states, activations in flight, logits, buffers, what the allocator
cannot see.

The bar: allocators keep more than they use, and libraries take their own; both differ between versions. So each part
comes with a low and a high end, and a plan "fits" when the high end does.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainingkit.planner.cluster.spec import Cluster
from trainingkit.planner.cost.stages import dealt, last_stage
from trainingkit.planner.layout import Job, Layout
from trainingkit.planner.memory.activations import conv_bytes, layer_bytes
from trainingkit.planner.models import Transformer
from trainingkit.planner.schedule import SCHEDULES
from trainingkit.planner.schedule.registry import Shape

GIB = 2.0**30
CONTEXT_BYTES = 1.0 * GIB
"""CUDA context, kernels' code, library workspaces."""
GROUP_BYTES = 0.65 * GIB
"""Buffers of one communicator."""
FRAGMENTATION = {"modern": (0.04, 0.02), "plain": (0.12, 0.06), "classic": (0.14, 0.12)}
"""What the allocator keeps beside what is used: of activations and transients, and of what stays."""
BUCKET_BYTES = 2.0 * GIB
"""Buffers in which gradients and parameters of a sharded optimizer travel."""
LOW, HIGH = 0.93, 1.06


@dataclass(frozen=True)
class Memory:
    """Bytes of one rank. `high` decides whether it fits."""

    weights: float
    gradients: float
    states: float
    activations: float
    logits: float
    buffers: float
    outside: float

    @property
    def total(self) -> float:
        """The estimate."""
        parts = self.weights + self.gradients + self.states + self.activations + self.logits + self.buffers
        return parts + self.outside

    @property
    def low(self) -> float:
        """Lower end."""
        return LOW * self.total

    @property
    def high(self) -> float:
        """Upper end."""
        return HIGH * self.total


def peak_memory(job: Job, cluster: Cluster, layout: Layout) -> Memory:
    """The fullest stage: the first has most micro-batches in flight, the last has the logits."""
    candidates = (stage_memory(job, cluster, layout, stage) for stage in _fullest(job, layout))
    return max(candidates, key=lambda memory: memory.total)


def _fullest(job: Job, layout: Layout) -> tuple[int, ...]:
    """Stages of which one is the fullest: the ends, and the first of those with most layers."""
    if not isinstance(job.model, Transformer):
        return (0,)
    counts = [sum(line) for line in dealt(job, layout)]
    return tuple(sorted({0, min(1, layout.pp - 1), counts.index(max(counts)), layout.pp - 1}))


def stage_memory(job: Job, cluster: Cluster, layout: Layout, stage: int) -> Memory:
    """Memory of one rank of a stage."""
    del cluster
    params, largest = _stage_params(job, layout, stage)
    over = layout.shard_over
    held = params / over if layout.shard >= 3 else params
    grads = (params / over if layout.shard >= 2 else params) * job.kept_grad_bytes
    own_copy = 4 if job.grad_bytes < 4 else 0
    states = params / over * (job.state_bytes + own_copy)
    kept, working = _activations(job, layout, stage)
    logits = _logits(job, layout, stage)
    era = "classic" if job.software.double_grads else "plain" if job.software.wide_norms else "modern"
    loosely, fixedly = FRAGMENTATION[era]
    buckets = BUCKET_BYTES if layout.shard in (1, 2) and era == "classic" else 0.0
    gathered = 2 * largest * job.width + largest * job.grad_bytes if layout.shard >= 3 else 0.0
    degrees = (layout.tp, layout.pp, layout.dp * layout.cp, layout.cp, layout.ep, layout.devices)
    groups = sum(degree > 1 for degree in degrees)
    fixed = held * job.width + grads + states
    loose = kept + working + logits
    return Memory(
        weights=held * job.width,
        gradients=grads,
        states=states,
        activations=kept + working,
        logits=logits,
        buffers=gathered + min(buckets, 2 * held) + loosely * loose + fixedly * fixed,
        outside=CONTEXT_BYTES + groups * GROUP_BYTES,
    )


def _stage_params(job: Job, layout: Layout, stage: int) -> tuple[float, float]:
    """Parameters of a stage on one rank before sharding, and of its largest layer."""
    model = job.model
    if not isinstance(model, Transformer):
        return float(model.params()), float(model.params()) / 50
    layers = sum(dealt(job, layout)[stage])
    expert = model.experts * model.mlp_params(model.ffn) if model.experts else 0
    layer = (model.layer_params() - expert) / layout.tp + expert / (layout.ep * layout.tp)
    total = layers * layer
    if stage == 0:
        total += (model.embedding_params + model.other_params) / layout.tp
    if stage == last_stage(layout):
        tied_copy = model.vocab * model.hidden if model.tied and last_stage(layout) > 0 else 0
        total += (model.head_params + tied_copy) / layout.tp
    return total, layer


def _activations(job: Job, layout: Layout, stage: int) -> tuple[float, float]:
    """Kept and working bytes of a stage at its peak."""
    if job.is_conv:
        return conv_bytes(job, layout), 0.0
    model = job.model
    assert isinstance(model, Transformer)
    one = layer_bytes(job, layout)
    layers = sum(dealt(job, layout)[stage])
    micros = layout.micro_batches(job.global_batch)
    held = SCHEDULES.get(layout.schedule).held(Shape(layout.pp, micros, layout.virtual), stage)
    kept = held * layers * one.kept
    if stage == 0:
        kept += held * layout.micro_batch * job.seq / layout.cp * model.hidden * (1 if job.drops else 0)
    return kept, one.working


def _logits(job: Job, layout: Layout, stage: int) -> float:
    model = job.model
    if not isinstance(model, Transformer) or model.family == "vit" or stage != last_stage(layout):
        return 0.0
    rows = model.vocab / layout.tp * (0.15 if model.family == "encoder" else 1.0)
    return job.software.logit_bytes * layout.micro_batch * job.seq / layout.cp * rows

"""After the last backward: the exchange of gradients among replicas, and the optimizer's update."""

from __future__ import annotations

from dataclasses import dataclass

from trainingkit.codec.size import message_bytes
from trainingkit.planner.cluster.spec import Cluster
from trainingkit.planner.cost.chip import chip_of
from trainingkit.planner.cost.collective import Group, gather_seconds, group_of, reduce_seconds
from trainingkit.planner.cost.gemm import stream_seconds
from trainingkit.planner.layout import Job, Layout
from trainingkit.planner.models import Transformer
from trainingkit.planner.schedule import SCHEDULES

UPDATE_PASSES = 1.6
"""Bytes of an update over those of states, gradient and weight read and written once: unscaling, norm, clipping."""
OVERLAP_SHARE = 0.85
"""Share of the backward pass that gradients can hide behind: the first bucket is ready late, and the last is alone."""
SHARED_SLOWDOWN = 0.06
"""Collectives that run beside matrix products take multiprocessors from them: this share of their time."""
STEP_HOST_S = 4e-3
"""Host work of an optimizer step that nothing hides: scaler, norms, schedule, logging."""


@dataclass(frozen=True)
class Exchange:
    """Seconds of the gradients' way among replicas: in all, and what is not hidden; and the optimizer's."""

    whole_s: float
    exposed_s: float
    update_s: float


def stage_params(job: Job, layout: Layout) -> float:
    """Parameters of the fullest stage on one rank, before sharding over replicas."""
    model = job.model
    if not isinstance(model, Transformer):
        return float(model.params())
    layers = -(-model.layers // layout.pp)
    expert = model.experts * model.mlp_params(model.ffn) if model.experts else 0
    layer = (model.layer_params() - expert) / layout.tp + expert / (layout.ep * layout.tp)
    ends = max(model.embedding_params, model.head_params)
    both = layout.pp == 1 or SCHEDULES.get(layout.schedule).folded
    ends = model.embedding_params + model.head_params if both else ends
    return layers * layer + ends / layout.tp


def replica_group(cluster: Cluster, layout: Layout, size: int | None = None) -> Group:
    """The data-parallel ranks of one position."""
    return group_of(cluster, size or layout.dp * layout.cp, layout.tp)


def exchange(job: Job, cluster: Cluster, layout: Layout, last_backward_s: float) -> Exchange:
    """Times of gradients, parameters and update. `last_backward_s`: what gradients may hide behind."""
    params = stage_params(job, layout)
    rounds = layout.micro_batches(job.global_batch) if layout.shard == 2 else 1
    whole = _whole(job, cluster, layout, params, rounds)
    hidden = min(whole * 0.95, OVERLAP_SHARE * last_backward_s * rounds) if job.software.overlap else 0.0
    owned = params / layout.shard_over
    n_bytes = UPDATE_PASSES * owned * (2 * job.state_bytes + job.grad_bytes + job.width)
    update = stream_seconds(chip_of(job, cluster.gpu, attention=True), n_bytes, 8) + STEP_HOST_S
    return Exchange(whole, whole - hidden + SHARED_SLOWDOWN * hidden, update)


def _whole(job: Job, cluster: Cluster, layout: Layout, params: float, rounds: int) -> float:
    """Seconds of all exchange of a step; sharded gradients are scattered after each of `rounds` micro-batches."""
    if layout.shard >= 3:
        return 0.0
    group = replica_group(cluster, layout)
    sent = _sent_bytes(job, layout, params)
    if not layout.shard:
        return reduce_seconds(cluster, group, sent) / layout.every
    if layout.shard_over >= group.size:
        down = gather_seconds(cluster, group, params * job.width)
        return (rounds * gather_seconds(cluster, group, sent) + down) / layout.every
    inner = replica_group(cluster, layout, layout.shard_over)
    back = gather_seconds(cluster, inner, params * job.width)
    return (rounds * reduce_seconds(cluster, group, sent) + back) / layout.every


def _sent_bytes(job: Job, layout: Layout, params: float) -> float:
    if layout.codec == "none":
        return params * job.grad_bytes
    block = 1 << 20
    return params * message_bytes(layout.codec, block) / block


def sharded_seconds(job: Job, cluster: Cluster, layout: Layout) -> tuple[float, float]:
    """Fully sharded parameters: seconds of exchange per micro-batch beside forward, and beside backward."""
    if layout.shard < 3:
        return 0.0, 0.0
    group = replica_group(cluster, layout, layout.shard_over)
    params = stage_params(job, layout)
    width = 1 if job.precision == "fp8" else job.width
    layers = job.model.layers / layout.pp if isinstance(job.model, Transformer) else 10.0
    if job.software.flat_gathers:
        flat = Group(group.size, 1)
        down, up = (0.5 * reduce_seconds(cluster, flat, params * each) for each in (width, job.grad_bytes))
        return down, down + up
    gather = gather_seconds(cluster, group, params * width, layers)
    scatter = gather_seconds(cluster, group, params * job.grad_bytes, layers)
    return gather, gather + scatter

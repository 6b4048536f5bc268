"""Which layers are on which stage, and the seconds of each stage's forward and backward.

Layers are dealt as evenly as can be, the surplus to the stages in the middle, since the first has the embedding and the
last has the head. Nothing is dropped: 78 layers on 12 stages are 6 stages of 7 and 6 of 6.
"""

from __future__ import annotations

from functools import lru_cache

from trainingkit.planner.cluster.spec import Cluster
from trainingkit.planner.cost.chip import chip_of
from trainingkit.planner.cost.collective import group_of, reduce_seconds, send_seconds
from trainingkit.planner.cost.convnet import conv_time
from trainingkit.planner.cost.gemm import gemm_seconds, stream_seconds
from trainingkit.planner.cost.layer import LayerTime, layer_time
from trainingkit.planner.cost.update import stage_params
from trainingkit.planner.layout import Job, Layout
from trainingkit.planner.models import Transformer
from trainingkit.planner.schedule import SCHEDULES, PipeCosts


@lru_cache(maxsize=5000)
def deal(layers: int, stages: int, chunks: int, folded: bool = False) -> tuple[tuple[int, ...], ...]:
    """Layers by stage and chunk; folded, the second chunk runs back from the last stage."""
    pieces = stages * chunks
    base, more = divmod(layers, pieces)
    middle = sorted(range(pieces), key=lambda piece: (abs(2 * piece - pieces + 1), piece))[:more]
    counts = [base + (piece in middle) for piece in range(pieces)]
    if folded:
        return tuple((counts[stage], counts[pieces - 1 - stage]) for stage in range(stages))
    return tuple(tuple(counts[chunk * stages + stage] for chunk in range(chunks)) for stage in range(stages))


def dealt(job: Job, layout: Layout) -> tuple[tuple[int, ...], ...]:
    """Layers by stage and chunk of a layout."""
    assert isinstance(job.model, Transformer)
    return deal(job.model.layers, layout.pp, layout.virtual, SCHEDULES.get(layout.schedule).folded)


def last_stage(layout: Layout) -> int:
    """Where the head is."""
    return 0 if SCHEDULES.get(layout.schedule).folded else layout.pp - 1


def head_seconds(job: Job, cluster: Cluster, layout: Layout) -> tuple[float, float]:
    """Forward and backward of the head and the loss."""
    model = job.model
    assert isinstance(model, Transformer)
    if model.family == "vit":
        return 0.0, 0.0
    return _head(job, cluster, layout.tp, layout.cp, layout.micro_batch)


@lru_cache(maxsize=5000)
def _head(job: Job, cluster: Cluster, tp: int, cp: int, micro_batch: int) -> tuple[float, float]:
    model, chip = job.model, chip_of(job, cluster.gpu, attention=True)
    assert isinstance(model, Transformer)
    tokens, rows = micro_batch * job.seq // cp, max(1, model.padded_vocab // tp)
    share = 0.15 if model.family == "encoder" else 1.0
    tokens = max(1, int(tokens * share))
    product = gemm_seconds(chip, tokens, rows, model.hidden)
    passes = 10.0 if job.software.fused and job.software.flash else 20.0
    loss = stream_seconds(chip, passes * tokens * rows, 4)
    sent = reduce_seconds(cluster, group_of(cluster, tp, 1), tokens * model.hidden * job.width)
    return product + loss + sent, 2 * product + loss + sent


def embedding_seconds(job: Job, cluster: Cluster, layout: Layout) -> float:
    """Forward of the embedding; backward takes twice as long."""
    model = job.model
    assert isinstance(model, Transformer)
    n_bytes = 4.0 * job.width * layout.micro_batch * job.seq // layout.cp * model.hidden
    sent = reduce_seconds(cluster, group_of(cluster, layout.tp, 1), n_bytes / 4)
    return stream_seconds(chip_of(job, cluster.gpu, attention=True), n_bytes, 3) + sent


def send_time(job: Job, cluster: Cluster, layout: Layout) -> float:
    """Seconds of one message between neighbouring stages."""
    if layout.pp == 1:
        return 0.0
    model = job.model
    assert isinstance(model, Transformer)
    n_bytes = layout.micro_batch * job.seq // layout.cp * model.hidden * job.width
    n_bytes /= layout.tp if job.software.scatter_sends else 1
    far = layout.devices > cluster.island and layout.tp * layout.dp * layout.cp >= cluster.island // 2
    sent = send_seconds(cluster, n_bytes, far=far)
    if layout.tp > 1 and job.software.scatter_sends and not layout.sequence_parallel:
        sent += 0.5 * reduce_seconds(cluster, group_of(cluster, layout.tp, 1), n_bytes * layout.tp)
    return sent


def accumulate_seconds(job: Job, cluster: Cluster, layout: Layout) -> float:
    """Seconds to add the gradients of one micro-batch to those before it."""
    if layout.micro_batches(job.global_batch) == 1:
        return 0.0
    n_bytes = job.software.accumulate_passes * job.grad_bytes * stage_params(job, layout)
    return stream_seconds(chip_of(job, cluster.gpu, attention=True), n_bytes)


def pipe_costs(job: Job, cluster: Cluster, layout: Layout) -> PipeCosts:
    """Seconds by stage and chunk for one micro-batch."""
    if job.is_conv:
        forward, backward = conv_time(job, cluster, layout)
        return PipeCosts(((forward,),), ((backward,),), ((0.0,),))
    times = layer_time(job, cluster, layout)
    dense = layer_time(job, cluster, layout, dense=True) if _dense_layers(job) else times
    splits = SCHEDULES.get(layout.schedule).splits
    send = send_time(job, cluster, layout)
    paid = send if job.software.blocking_p2p else 0.0
    grown = accumulate_seconds(job, cluster, layout)
    forward, backward, weight = (_table(job, cluster, layout, (times, dense), kind, splits) for kind in "FBW")
    forward = tuple(tuple(x + paid for x in line) for line in forward)
    backward = tuple(tuple(x + paid + grown / layout.virtual for x in line) for line in backward)
    return PipeCosts(forward, backward, weight, 0.0 if paid else send)


def _dense_layers(job: Job) -> int:
    return job.model.dense_layers if isinstance(job.model, Transformer) else 0


def _table(
    job: Job, cluster: Cluster, layout: Layout, times: tuple[LayerTime, LayerTime], kind: str, splits: bool
) -> tuple[tuple[float, ...], ...]:
    model = job.model
    assert isinstance(model, Transformer)
    counts = dealt(job, layout)
    one, first = (_piece(time, kind, splits) for time in times)
    table = [[count * one for count in line] for line in counts]
    table[0][0] += _dense_layers(job) * (first - one)
    start, (head_f, head_b) = embedding_seconds(job, cluster, layout), head_seconds(job, cluster, layout)
    table[0][0] += {"F": start, "B": 2 * start, "W": 0.0}[kind]
    table[last_stage(layout)][-1] += {"F": head_f, "B": head_b, "W": 0.0}[kind]
    return tuple(tuple(line) for line in table)


def _piece(time: LayerTime, kind: str, splits: bool) -> float:
    if kind == "F":
        return time.whole_forward_s
    weight = time.wgrad_s if splits else 0.0
    return weight if kind == "W" else time.whole_backward_s - weight

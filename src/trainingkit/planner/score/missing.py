"""What a row leaves open is taken in all ways that are plausible, with weights that never look at the row's own label.

Memory is used as evidence: a way of working that does not fit the device is not what was run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from trainingkit.core.errors import ConfigError
from trainingkit.planner.cluster import Cluster, Gpu, gpu_named
from trainingkit.planner.layout import Job, Layout
from trainingkit.planner.memory import peak_memory
from trainingkit.planner.models import Model
from trainingkit.planner.score.refusing import SCHEDULE_NAMES, replicas, why_not
from trainingkit.planner.score.rows import Row
from trainingkit.planner.score.shapes import model_of
from trainingkit.planner.score.software import is_classic, precision_of, shard_of, softwares_of


@dataclass(frozen=True)
class Way:
    """One reading of a row, with its weight."""

    weight: float
    job: Job
    cluster: Cluster
    layout: Layout


def ways_of(row: Row) -> list[Way] | str:
    """All readings of a row; or why it cannot be predicted."""
    refusal = why_not(row)
    if refusal:
        return refusal
    model = model_of(row)
    if isinstance(model, str):
        return model
    try:
        gpu = gpu_named(row.text("gpu"))
    except ConfigError:
        return f"device not in the catalogue: {row.text('gpu')}"
    ways = list(_ways(row, model, gpu))
    if not ways:
        return "no legal reading of its layout"
    fitting = [way for way in ways if peak_memory(way.job, way.cluster, way.layout).low <= gpu.memory_bytes]
    kept = fitting or ways
    total = sum(way.weight for way in kept)
    return [replace(way, weight=way.weight / total) for way in kept]


def _ways(row: Row, model: Model, gpu: Gpu) -> Iterator[Way]:
    choices = product(softwares_of(row, gpu), _networks(row, gpu), _recomputes(row, gpu), _micros(row), _virtuals(row))
    for (sw, w1), (gbit, w2), (again, w3), (micro, w4), (virtual, w5) in choices:
        layout = _layout(row, gpu, again, micro, virtual)
        job = Job(model, _length(row, model), row.whole("global_batch") or 1, precision_of(row), sw)
        yield Way(w1 * w2 * w3 * w4 * w5, job, _cluster(row, gpu, gbit), layout)


def _length(row: Row, model: Model) -> int:
    """Tokens of a sample that are worked on. Encoders skip padding: articles cut at 512 are half as long on average."""
    seq = row.whole("seq_len") or 1
    return seq // 2 if getattr(model, "family", "") == "encoder" and seq >= 512 else seq


def _networks(row: Row, gpu: Gpu) -> list[tuple[float, float]]:
    """Gbit/s of one device."""
    per_node = row.whole("gpus_per_node") or 8
    total = row.number("inter_node_gbps")
    if total:
        return [(total / per_node, 1.0)]
    if (row.whole("n_gpus") or 1) <= per_node:
        return [(gpu.far_gbit, 1.0)]
    return [(gpu.far_gbit, 0.85), (gpu.far_gbit / 2, 0.15)]


def _recomputes(row: Row, gpu: Gpu) -> list[tuple[str, float]]:
    text = row.text("recompute").rstrip("?")
    if text in ("none", "selective", "full"):
        return [(text, 1.0)]
    if is_classic(row, gpu):
        return [("full", 0.9), ("none", 0.1)]
    return [("none", 0.9), ("selective", 0.08), ("full", 0.02)]


def _micros(row: Row) -> list[tuple[int, float]]:
    """Micro-batch sizes. PyTorch's own pipelines cut a replica's batch into as many pieces as there are stages."""
    told = row.whole("micro_batch")
    if told:
        return [(told, 1.0)]
    share = max(1, (row.whole("global_batch") or 1) // replicas(row))
    stages = row.whole("pp") or 1
    if "fsdp2" in row.text("zero_or_fsdp") and stages > 1 and share % stages == 0:
        return [(share // stages, 1.0)]
    fits = [size for size in (1, 2, 4, 8) if share % size == 0] or [1]
    return [(size, 1.0 / size) for size in fits]


def _virtuals(row: Row) -> list[tuple[int, float]]:
    told = row.whole("virtual_pp")
    if told or "interleaved" not in row.text("schedule").lower():
        return [(told or 1, 1.0)]
    layers, stages = row.whole("layers") or 1, row.whole("pp") or 1
    fits = [v for v in range(2, 13) if layers % (stages * v) == 0] or [1]
    return [(v, 1.0 / len(fits)) for v in fits]


def _layout(row: Row, gpu: Gpu, again: str, micro: int, virtual: int) -> Layout:
    tp, pp, cp, ep = (row.whole(column) or 1 for column in ("tp", "pp", "cp", "ep"))
    dp = replicas(row)
    shard, group = shard_of(row)
    schedule = SCHEDULE_NAMES.get(row.text("schedule").lower().rstrip("?"), "1f1b")
    batch = row.whole("global_batch") or 1
    micros = max(1, round(batch / (dp * micro)))
    if schedule == "zb-v" and pp > 1:
        virtual = 2
    elif schedule != "interleaved" or pp == 1 or virtual == 1 or micros % pp:
        schedule, virtual = ("1f1b" if schedule == "interleaved" else schedule), 1
    return Layout(
        tp=tp,
        pp=pp,
        dp=dp,
        cp=cp,
        ep=ep,
        micro_batch=micro,
        schedule=schedule,
        virtual=virtual,
        recompute=again,  # type: ignore[arg-type]
        shard=shard,
        shard_group=group,
        sequence_parallel=tp > 1 and gpu.has("fp8"),
    )


def _cluster(row: Row, gpu: Gpu, gbit: float) -> Cluster:
    per_node = row.whole("gpus_per_node") or 8
    devices = row.whole("n_gpus") or 1
    island = max(gpu.island, per_node) if gpu.island > 1 else per_node
    return Cluster(gpu=gpu, nodes=max(1, -(-devices // per_node)), per_node=per_node, island=island, far_gbit=gbit)

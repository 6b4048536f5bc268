"""The space of layouts: every combination of degrees, micro-batch, schedule, recompute and sharding that is legal.

What is never legal is not built; each rule that cuts is counted, so that a reader can ask which rule excluded what.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from trainingkit.planner.cluster.spec import Cluster
from trainingkit.planner.layout import Job, Layout, Recompute
from trainingkit.planner.models import Transformer
from trainingkit.planner.schedule import SCHEDULES

MOST_MICRO_BATCH = 64
LONG_SEQUENCE = 16384
RULES = {
    "tp island": "tensor parallelism stays inside an island of fast links",
    "tp heads": "attention heads, and groups of keys, must be divisible by tensor parallelism",
    "tp ffn": "the width of the feed-forward layers must be divisible by tensor parallelism",
    "pp layers": "each stage needs at least one layer",
    "cp short": f"context parallelism is for samples of {LONG_SEQUENCE:,} tokens and more",
    "batch": "the global batch must be divisible by replicas times micro-batch",
    "interleaved": "interleaving needs whole groups of micro-batches, as many as there are stages",
    "shard pp": "stages keep parameters and gradients over several micro-batches, so only optimizer states are sharded",
    "ep": "experts must be divisible by expert parallelism, and that must divide the replicas",
}
"""What cuts whole branches of the space, in words."""


@dataclass(frozen=True)
class Space:
    """What may be varied. Codecs and `every` change what is learned, so they are not varied unless they are named."""

    schedules: tuple[str, ...] = ("1f1b", "interleaved", "zb-h1", "zb-v")
    recomputes: tuple[Recompute, ...] = ("none", "selective", "full")
    shards: tuple[int, ...] = (0, 1, 2, 3)
    codecs: tuple[str, ...] = ("none",)
    everys: tuple[int, ...] = (1,)
    most_virtual: int = 12


def divisors(n: int) -> list[int]:
    """All divisors of n, ascending."""
    low = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    return low + [n // d for d in reversed(low) if d * d != n]


def layouts(job: Job, cluster: Cluster, space: Space, cut: Counter[str]) -> Iterator[Layout]:
    """All legal layouts that use every device. `cut` counts branches by the rule that cut them."""
    for tp, pp, cp, dp in _degrees(job, cluster, cut):
        for ep in _expert_degrees(job, dp * cp, cut):
            yield from _ways(job, space, (tp, pp, dp, cp, ep), cut)


def _degrees(job: Job, cluster: Cluster, cut: Counter[str]) -> Iterator[tuple[int, int, int, int]]:
    for tp in _tensor_degrees(job, cluster, cut):
        rest = cluster.devices // tp
        for pp in divisors(rest):
            if pp > _layers(job):
                cut["pp layers"] += 1
                continue
            for cp in _context_degrees(job, rest // pp, cut):
                yield tp, pp, cp, rest // pp // cp


def _tensor_degrees(job: Job, cluster: Cluster, cut: Counter[str]) -> Iterator[int]:
    model = job.model
    if not isinstance(model, Transformer):
        yield 1
        return
    for tp in divisors(cluster.devices):
        if tp > cluster.island or cluster.island % tp:
            cut["tp island"] += 1
        elif model.heads % tp or (model.kv_heads % tp and tp % model.kv_heads):
            cut["tp heads"] += 1
        elif model.ffn % tp or model.shared_ffn % tp:
            cut["tp ffn"] += 1
        else:
            yield tp


def _layers(job: Job) -> int:
    return job.model.layers if isinstance(job.model, Transformer) else 1


def _context_degrees(job: Job, rest: int, cut: Counter[str]) -> Iterator[int]:
    yield 1
    more = [cp for cp in (2, 4, 8, 16, 32) if rest % cp == 0 and not job.is_conv]
    if job.seq < LONG_SEQUENCE:
        cut["cp short"] += len(more)
        return
    yield from (cp for cp in more if job.seq % (2 * cp) == 0)


def _expert_degrees(job: Job, replicas: int, cut: Counter[str]) -> Iterator[int]:
    yield 1
    experts = job.model.experts if isinstance(job.model, Transformer) else 0
    for ep in divisors(experts)[1:] if experts else []:
        if replicas % ep:
            cut["ep"] += 1
        else:
            yield ep


def _ways(job: Job, space: Space, degrees: tuple[int, int, int, int, int], cut: Counter[str]) -> Iterator[Layout]:
    tp, pp, dp, cp, ep = degrees
    if job.global_batch % dp:
        cut["batch"] += 1
        return
    sequence = (True, False) if tp > 1 and job.seq % (tp * cp) == 0 else (False,)
    shards = [shard for shard in space.shards if shard == 0 or dp * cp > 1]
    if pp > 1 and any(shard > 1 for shard in shards):
        cut["shard pp"] += 1
        shards = [shard for shard in shards if shard < 2]
    exchanges = [(codec, every) for codec, every in product(space.codecs, space.everys) if dp > 1 or codec == "none"]
    for micro in divisors(job.global_batch // dp):
        if micro > MOST_MICRO_BATCH and not job.is_conv:
            break
        pipes = list(_pipes(job, space, pp, job.global_batch // dp // micro, cut))
        for (schedule, virtual), again, shard, (codec, every), sp in product(
            pipes, _recomputes(job, space), shards, exchanges, sequence
        ):
            yield Layout(tp, pp, dp, cp, ep, micro, schedule, virtual, again, shard, 0, sp, codec, every)


def _recomputes(job: Job, space: Space) -> tuple[Recompute, ...]:
    return ("none",) if job.is_conv else space.recomputes


def _pipes(job: Job, space: Space, pp: int, micros: int, cut: Counter[str]) -> Iterator[tuple[str, int]]:
    """Schedules with their virtual stages."""
    if pp == 1:
        yield "1f1b", 1
        return
    for schedule in space.schedules:
        entry = SCHEDULES.get(schedule)
        if not entry.needs_chunks:
            yield schedule, 1
        elif entry.folded:
            yield from [(schedule, 2)] if _layers(job) >= 2 * pp else []
        elif micros % pp:
            cut["interleaved"] += 1
        else:
            most = min(space.most_virtual, _layers(job) // pp)
            yield from (("interleaved", virtual) for virtual in range(2, most + 1))

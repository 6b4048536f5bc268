"""One transformer layer on one rank: forward, backward, what is computed again, and the exchange inside the layer.

Matrix products by shape, attention fused or not, elementwise work by bytes. Backward of a product is two products:
one for its input, one for its weight.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from trainingkit.planner.cluster.spec import Cluster
from trainingkit.planner.cost.chip import chip_of
from trainingkit.planner.cost.collective import exchange_seconds, group_of, reduce_seconds, send_seconds
from trainingkit.planner.cost.gemm import Chip, gemm_seconds, stream_seconds
from trainingkit.planner.layout import Job, Layout
from trainingkit.planner.models import Transformer

BACKWARD_STREAM = 1.8
"""Bytes that elementwise work moves in backward, over those of forward."""
FLASH_FORWARD, FLASH_BACKWARD = 0.66, 0.52
"""Share of the achievable matrix rate that fused attention reaches (FlashAttention-2 and -3, head size 128)."""
EAGER_BYTES = 1.7
"""Bytes that unfused elementwise chains move, over fused ones."""
EXPERT_KERNELS = 90
"""Kernels and host steps of routing, sorting, sending and putting back."""
EXPERT_PASSES = 14
"""Times that a token's copies go through memory to be sorted, padded, weighted and summed."""
EXPERT_SHARE = 0.8
"""Share of their rate that experts' products reach: unequal groups, small ones, a wait for their sizes."""
FORWARD_KERNELS = {True: 16, False: 28}
BACKWARD_KERNELS = {True: 30, False: 46}
BACKWARD_HOST = 0.7
"""Host time of a kernel in backward, which the engine launches without Python, over that of forward."""


@dataclass(frozen=True)
class LayerTime:
    """Seconds of one layer and one micro-batch. `wgrad_s` is the part of `backward_s` that no other layer waits for.

    `exchange_*` are exposed collectives (tensor, expert, context), not in `forward_s` and `backward_s`.
    """

    forward_s: float
    backward_s: float
    wgrad_s: float
    again_s: float
    exchange_forward_s: float
    exchange_backward_s: float
    exchange_again_s: float

    @property
    def whole_forward_s(self) -> float:
        """Forward with its exchange."""
        return self.forward_s + self.exchange_forward_s

    @property
    def whole_backward_s(self) -> float:
        """Backward with what is computed again, and their exchange."""
        return self.backward_s + self.again_s + self.exchange_backward_s + self.exchange_again_s


@dataclass(frozen=True)
class Shape:
    """What of a layout a layer's time depends on."""

    tp: int
    cp: int
    ep: int
    micro_batch: int
    recompute: str
    sequence_parallel: bool


def shape_of(layout: Layout) -> Shape:
    """The part of a layout that decides about a layer."""
    return Shape(layout.tp, layout.cp, layout.ep, layout.micro_batch, layout.recompute, layout.sequence_parallel)


def layer_time(job: Job, cluster: Cluster, layout: Layout, *, dense: bool = False) -> LayerTime:
    """Time of one layer. `dense`: one of the leading layers without experts."""
    return _layer_time(job, cluster, shape_of(layout), dense)


@lru_cache(maxsize=50_000)
def _layer_time(job: Job, cluster: Cluster, shape: Shape, dense: bool) -> LayerTime:
    model = job.model
    assert isinstance(model, Transformer)
    wide, narrow = chip_of(job, cluster.gpu), chip_of(job, cluster.gpu, attention=True)
    tokens = shape.micro_batch * job.seq // shape.cp
    products = _products(job, model, shape, tokens, dense)
    width = 1 if job.precision == "fp8" else 2
    linear_f = sum(count * gemm_seconds(wide, m, n, k, b, width) for m, n, k, b, count in products)
    dgrad = sum(count * gemm_seconds(wide, m, k, n, b, width) for m, n, k, b, count in products)
    wgrad = sum(count * gemm_seconds(wide, k, n, m, b, width) for m, n, k, b, count in products)
    attention_f, attention_b = _attention(job, model, shape, narrow)
    stream_f = _stream(job, model, shape, tokens, narrow, dense)
    stream_b = BACKWARD_STREAM * stream_f
    forward, backward = linear_f + attention_f + stream_f, dgrad + wgrad + attention_b + stream_b
    exchange_f, exchange_b = _exchange(job, model, shape, tokens, cluster, dense)
    again, exchange_again = _again(job, shape, (linear_f, attention_f, stream_f), exchange_f)
    fused, host_s = job.software.fused, job.software.host_us * 1e-6
    extra = 4 if shape.tp > 1 else 0
    extra += EXPERT_KERNELS if model.experts and not dense else 0
    host_f = (FORWARD_KERNELS[fused] + extra) * host_s
    host_b = (BACKWARD_KERNELS[fused] + extra) * host_s * BACKWARD_HOST
    return LayerTime(
        forward_s=max(forward, host_f - exchange_f),
        backward_s=max(backward, host_b - exchange_b) + job.software.layer_wait_s,
        wgrad_s=wgrad,
        again_s=max(again, host_f - exchange_again) if again else 0.0,
        exchange_forward_s=exchange_f,
        exchange_backward_s=exchange_b,
        exchange_again_s=exchange_again,
    )


Product = tuple[int, int, int, int, float]


def _products(job: Job, model: Transformer, shape: Shape, tokens: int, dense: bool) -> list[Product]:
    """(m, n, k, batch, count) of the layer's matrix products on one rank."""
    h, tp = model.hidden, shape.tp
    q, kv = model.heads * model.head_size // tp, max(model.head_size, model.kv_heads * model.head_size // tp)
    found: list[Product] = []
    if model.kv_rank:
        low = model.q_rank + model.kv_rank + model.rope_dim
        found += [(tokens, low, h, 1, 1), (tokens, q + model.heads * model.rope_dim // tp, model.q_rank, 1, 1)]
        found += [(tokens, 2 * q, model.kv_rank, 1, 1)]
    else:
        found.append((tokens, q + 2 * kv, h, 1, 1))
    found.append((tokens, h, q, 1, 1))
    ways = 2 if model.gated else 1
    if not model.experts or dense:
        ffn = (model.dense_ffn if dense and model.dense_ffn else model.ffn) // tp
        return [*found, (tokens, ways * ffn, h, 1, 1), (tokens, h, ffn, 1, 1)]
    local = max(1, model.experts // shape.ep)
    rows = max(1, tokens * model.experts_per_token // local)
    inner = max(1, model.ffn // tp)
    slower = 1 / EXPERT_SHARE
    found.append((tokens, model.experts, h, 1, 1))
    found += [(rows, ways * inner, h, local, slower), (rows, h, inner, local, slower)]
    if model.shared_ffn:
        wide = model.shared_ffn // tp
        found += [(tokens, ways * wide, h, 1, 1), (tokens, h, wide, 1, 1)]
    return found


def _attention(job: Job, model: Transformer, shape: Shape, chip: Chip) -> tuple[float, float]:
    """Forward and backward seconds of scores, softmax and weighted sum."""
    heads, size, seq = max(1, model.heads // shape.tp), model.head_size, job.seq
    rows, b = seq // shape.cp, shape.micro_batch
    if job.software.flash:
        flops = 4.0 * b * heads * rows * seq * size * (0.5 if model.causal else 1.0)
        ragged = 1 + 256 / seq
        small = 1.0 if size >= 128 else 0.85 if size >= 64 else 0.6
        rate = chip.rate * small * job.software.attention_share
        return flops * ragged / (rate * FLASH_FORWARD), 2.5 * flops * ragged / (rate * FLASH_BACKWARD)
    scores = gemm_seconds(chip, rows, seq, size, b * heads)
    mix = gemm_seconds(chip, rows, size, seq, b * heads)
    score_bytes = b * heads * rows * float(seq)
    softmax = stream_seconds(chip, score_bytes * (9.0 if job.drops else 4.0) * _eager(job), 2)
    back_products = 2 * (scores + mix)
    return scores + mix + softmax, back_products + softmax * 1.3


def _eager(job: Job) -> float:
    return 1.0 if job.software.fused else EAGER_BYTES


def _stream(job: Job, model: Transformer, shape: Shape, tokens: int, chip: Chip, dense: bool) -> float:
    """Seconds of elementwise work in forward: norms, residuals, activation, rotary, casts, expert permutation."""
    whole = model.hidden * tokens / (shape.tp if shape.sequence_parallel else 1)
    split = tokens / shape.tp
    width = job.width
    n_bytes = whole * (10 * width + (2 if job.drops else 0))
    ways = 3 if model.gated else 2
    used = model.experts_per_token if model.experts and not dense else 1
    ffn = model.dense_ffn if dense and model.dense_ffn else model.ffn * used + model.shared_ffn
    n_bytes += split * ffn * ways * width
    n_bytes += split * (model.heads + 2 * model.kv_heads) * model.head_size * (2 * width if model.rms else width)
    if job.precision == "fp8":
        n_bytes += whole * 8 + split * (ffn + model.heads * model.head_size) * 4
    if model.experts and not dense:
        n_bytes += tokens * model.hidden * model.experts_per_token * EXPERT_PASSES * width / shape.tp
    return stream_seconds(chip, n_bytes * _eager(job), 8 if job.software.fused else 16)


def _exchange(
    job: Job, model: Transformer, shape: Shape, tokens: int, cluster: Cluster, dense: bool
) -> tuple[float, float]:
    """Exposed seconds of collectives in forward and in backward."""
    total = 0.0
    if shape.tp > 1:
        group = group_of(cluster, shape.tp, 1)
        one = reduce_seconds(cluster, group, tokens * model.hidden * job.width)
        total += 2 * one * (1 - job.software.tp_overlap * (1 if shape.sequence_parallel else 0))
    if model.experts and not dense and shape.ep > 1:
        group = group_of(cluster, shape.ep, shape.tp)
        copies = group.islands * (1 - (1 - 1 / group.islands) ** model.experts_per_token)
        copies = min(copies, model.expert_islands or copies)
        width = 1.5 if job.precision == "fp8" else float(job.width)
        sent = tokens * model.hidden * width / shape.tp
        whole = exchange_seconds(cluster, group, sent * copies, sent * model.experts_per_token)
        total += 2 * whole * (1 - job.software.expert_overlap)
    if shape.cp > 1:
        keys = 2 * shape.micro_batch * job.seq // shape.cp * model.kv_heads * model.head_size // shape.tp * job.width
        far = shape.cp * shape.tp > cluster.island
        total += 0.3 * (shape.cp - 1) * send_seconds(cluster, keys, far=far)
    return total, total


def _again(job: Job, shape: Shape, parts: tuple[float, float, float], exchange_f: float) -> tuple[float, float]:
    """Seconds of forward work that backward repeats, and of its exchange."""
    linear, attention, stream = parts
    if shape.recompute == "full":
        return linear + attention + stream, exchange_f
    if shape.recompute == "selective":
        return (0.5 * linear + stream, 0.5 * exchange_f) if job.software.flash else (attention, 0.0)
    return 0.0, 0.0

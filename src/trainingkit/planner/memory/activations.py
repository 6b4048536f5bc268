"""Bytes of activations that one layer keeps for backward, per token (Korthikanti et al. 2022; extended).

For multi-head GELU layers with dropout in 16 bits this is the paper's s b h (10 + 24/t + 5 a s / (h t)), and
s b h / t (34 + 5 a s / h) with sequence parallelism. Gated MLPs, grouped queries, fused attention and experts change
the terms, which are therefore counted one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainingkit.planner.layout import Job, Layout
from trainingkit.planner.models import ConvNet, Transformer

SELECTIVE_SHARE = 0.5
"""Share of a layer that is kept when every second matrix product is computed again (torchtitan's selective mode)."""

WIDE_NORM_BYTES = 16
"""Bytes per value that two norms in plain PyTorch keep: their inputs and what they normalise, in fp32."""

GATHERED = 4.0
"""Whole tensors at once that sequence parallelism gathers, or is about to scatter, around a layer's products."""


@dataclass(frozen=True)
class LayerBytes:
    """Bytes of one layer for one micro-batch: what stays until backward, and what is there only while it runs."""

    kept: float
    working: float


def layer_bytes(job: Job, layout: Layout) -> LayerBytes:
    """Activations of one layer on one rank."""
    model = job.model
    assert isinstance(model, Transformer)
    tokens = layout.micro_batch * job.seq / layout.cp
    whole = tokens * _whole_bytes(job, model) / (layout.tp if layout.sequence_parallel else 1)
    split = tokens * _split_bytes(job, model) / layout.tp
    scores = 0.0 if job.software.flash else tokens * 5.0 * model.heads * job.seq / layout.cp / layout.tp
    wide = tokens * _wide_bytes(job, model) / (layout.tp if layout.sequence_parallel else 1)
    full = whole + wide + split + scores
    gathered = GATHERED * tokens * model.hidden * job.width if layout.sequence_parallel and layout.tp > 1 else 0.0
    if layout.recompute == "full":
        return LayerBytes(
            tokens * job.width * model.hidden / (layout.tp if layout.sequence_parallel else 1), full + gathered
        )
    if layout.recompute == "selective":
        kept = SELECTIVE_SHARE * (full - wide) if job.software.flash else whole + split
        return LayerBytes(kept, full - kept + gathered)
    return LayerBytes(full, 0.1 * full + gathered)


def _whole_bytes(job: Job, model: Transformer) -> float:
    """Per token: inputs of the two norms, of attention and of the MLP; two dropout masks."""
    return model.hidden * (4 * job.width + (2 if job.drops else 0))


def _wide_bytes(job: Job, model: Transformer) -> float:
    """Per token: what norms in plain PyTorch keep in fp32. Selective recompute makes it again."""
    return model.hidden * WIDE_NORM_BYTES if model.rms and job.software.wide_norms else 0.0


def _split_bytes(job: Job, model: Transformer) -> float:
    """Per token: queries, keys, values, what attention put out, and the inside of the MLP."""
    wide, narrow = model.heads * model.head_size, model.kv_heads * model.head_size
    eager = 0 if not job.software.wide_norms or not model.rms else wide + narrow + model.ffn // 2
    used = model.experts_per_token if model.experts else 1
    inside = (3 if model.gated else 2) * (model.ffn * used + model.shared_ffn)
    sent = 2 * model.hidden * used if model.experts else 0
    return job.width * (2 * wide + 2 * narrow + inside + sent + eager)


def conv_bytes(job: Job, layout: Layout) -> float:
    """Activations of a whole convolutional network."""
    model = job.model
    assert isinstance(model, ConvNet)
    return float(layout.micro_batch * model.activation_values * job.width)

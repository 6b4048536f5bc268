"""Rows cut into blocks that share a scale: whole blocks, then a shorter one. And the scale as bf16."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from trainingkit.kernels.reference.littleendian import from_bytes, to_bytes
from trainingkit.kernels.rowplan import RowPlan

HUGE = 2.0**127
SMALLEST_NORMAL_BITS = 0x00800000


def encode_blocks(
    values: Tensor, plan: RowPlan, one: Callable[[Tensor], tuple[Tensor, Tensor]]
) -> tuple[Tensor, Tensor]:
    """[rows, keep] fp32 -> ([rows, value_bytes] uint8, [rows, keep] fp32 - what a reader will see).

    Args:
        one: for blocks of one length, [rows, blocks, n] fp32 -> ([rows, blocks, bytes] uint8, [rows, blocks, n] fp32).
    """
    coded = [one(part) for part in _cut(values, plan.block)]
    code, seen = (torch.cat([part.flatten(1) for part in parts], dim=1) for parts in zip(*coded, strict=True))
    return code, seen


def decode_blocks(code: Tensor, plan: RowPlan, one: Callable[[Tensor, int], Tensor]) -> Tensor:
    """[rows, value_bytes] uint8 -> [rows, keep] fp32.

    Args:
        one: [rows, blocks, bytes] uint8 and n -> [rows, blocks, n] fp32.
    """
    whole, tail = divmod(plan.keep, plan.block)
    cut = whole * plan.block_bytes
    parts = [one(code[:, :cut].unflatten(1, (whole, plan.block_bytes)), plan.block)]
    if tail:
        parts.append(one(code[:, cut:].unsqueeze(1), tail))
    return torch.cat([part.flatten(1) for part in parts], dim=1)


def finite_blocks(values: Tensor) -> Tensor:
    """The values, with zeros in each block that holds something that is not finite."""
    return torch.where(values.isfinite().all(-1, keepdim=True), values, 0.0)


def inverse_of(scale: Tensor) -> Tensor:
    """fl(1 / scale), or 0 for a scale of 0."""
    return torch.where(scale > 0, 1 / scale, 0.0)


def bf16_scale(top: Tensor, largest: float) -> Tensor:
    """bf16(top / largest) as fp32; rounded up, or down for the largest; 0 where it would not be normal."""
    raw = (top / largest).view(torch.int32)
    scale_bits = torch.where(top < HUGE, raw + 0xFFFF, raw) & ~0xFFFF
    return torch.where(scale_bits >= SMALLEST_NORMAL_BITS, scale_bits, 0).to(torch.int32).view(torch.float32)


def bf16_to_bytes(scale: Tensor) -> Tensor:
    """[rows, blocks, 1] fp32 -> [rows, blocks, 2] uint8."""
    return to_bytes((scale.view(torch.int32) >> 16).flatten(1), 2).unflatten(1, (-1, 2))


def bf16_from_bytes(code: Tensor) -> Tensor:
    """[rows, blocks, 2] uint8 -> [rows, blocks, 1] fp32."""
    return (from_bytes(code.flatten(1), 2) << 16).to(torch.int32).view(torch.float32).unsqueeze(-1)


def _cut(values: Tensor, block: int) -> list[Tensor]:
    whole = values.shape[1] // block
    parts = [values[:, : whole * block].unflatten(1, (whole, block))] if whole else []
    tail = values[:, whole * block :]
    return [*parts, tail.unsqueeze(1)] if tail.shape[1] else parts

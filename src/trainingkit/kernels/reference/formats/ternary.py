"""`ternary`: blocks of levels -1, 0, 1 times one scale, near the scale of least squared error; the error is exact.

The block's largest magnitude would be a poor scale: most values would round to zero. Ternary Weight Networks (Li,
Zhang, Liu 2016, arXiv:1605.04711) take the mean of the magnitudes above 3/4 of the mean magnitude, which is within
1 % of the best for normally distributed values, and is the mean itself where the block holds the largest of a chunk.
Here in integers, so that the order of a sum cannot matter. For a block of n values with largest magnitude m,
2**e <= m < 2**(e + 1):

    u_i   = floor(|y_i| * 2**(10 - e))                  0 .. 2047
    mean  = fl(S / c),  S, c: sum and number of the u_i above floor(3 * sum(u) / (4 * n))
    scale = mean * 2**(e - 10), rounded to 1 or 1.5 times a power of two, halves up
    scale = 0, level = 0     where it is not in 1.5 * 2**-64 .. 1.5 * 2**63, or m is not finite
    level = round_half_even(y * fl(1 / scale)), within -1 .. 1
    code  = level + 2, in 2 bits

The scale is one byte: its exponent (from -64) in the upper seven bits, its bit of fraction in the lowest; 0 is zero.
A scale so coarse adds up to a tenth to the squared error of normally distributed values, which is flat around the best
scale; where a block holds the largest of a chunk, up to 3.5 % of the energy is not sent instead of 1.3 %. Blocks of one
row follow each other, each as its scale and its codes (lowest bits first). Cost: 1 / block bytes a value and 2 bits.

Why y - level * scale is exact, and with it (y - level * scale) + level * scale == y:
- level 0: the error is y. Level 1 (signs alike): y >= scale / 2, as for `linear`.
- scale > y: then y < scale <= 2 * y, and Sterbenz' lemma applies.
- scale <= y: at least one u_i is above the threshold and hence at least 1, so mean >= 1, scale >= 2**(e - 10), and the
  lowest bit of the scale is worth at least 2**(e - 11), which is a multiple of y's last place. The difference is a
  multiple of it as well, and not larger than y: it needs no more bits than y has.
What is beyond the scale of a level stays in the residual and is sent in the next rounds.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trainingkit.kernels.reference.blocks import decode_blocks, encode_blocks, finite_blocks, inverse_of
from trainingkit.kernels.reference.formats.base import FORMATS
from trainingkit.kernels.reference.littleendian import from_bits, to_bits
from trainingkit.kernels.rowplan import RowPlan

STEPS = 10
"""A magnitude is at least `2**STEPS` steps, where it is the largest of its block."""
FRACTION = 22
"""Bits of a float below the one that a scale keeps."""
OFFSET = 126
"""Scale byte 1 is the float whose upper bits are `1 + OFFSET`."""


@FORMATS.register("ternary")
class Ternary:
    """Levels -1, 0, 1 in blocks of `plan.block`."""

    @staticmethod
    def encode(values: Tensor, plan: RowPlan) -> tuple[Tensor, Tensor]:
        """See `Format.encode`."""
        return encode_blocks(values, plan, _encode)

    @staticmethod
    def decode(code: Tensor, plan: RowPlan) -> Tensor:
        """See `Format.decode`."""
        return decode_blocks(code, plan, _decode)


def _encode(values: Tensor) -> tuple[Tensor, Tensor]:
    values = finite_blocks(values)
    scale_byte = _scale_byte(values.abs())
    scale = _scale(scale_byte)
    level = (torch.round(values * inverse_of(scale)) + 0.0).clamp(-1, 1)
    return torch.cat([scale_byte.to(torch.uint8), to_bits(level.long() + 2, 2)], dim=-1), level * scale


def _scale_byte(magnitudes: Tensor) -> Tensor:
    """[rows, blocks, n] fp32 -> [rows, blocks, 1] int64, 0 .. 255."""
    exponent = magnitudes.amax(-1, keepdim=True).view(torch.int32).long() >> 23
    to_steps = _power_of_two(127 + STEPS - (exponent - 127).clamp(min=-64))
    steps = (magnitudes * to_steps).long()
    large = steps > 3 * steps.sum(-1, keepdim=True) // (4 * magnitudes.shape[-1])
    total, count = (steps * large).sum(-1, keepdim=True), large.sum(-1, keepdim=True)
    mean = (total.float() / count.clamp(min=1).float()).view(torch.int32).long()
    scale_bits = mean + ((exponent - 127 - STEPS) << 23)
    byte = ((scale_bits + (1 << FRACTION - 1)) >> FRACTION) - OFFSET
    return torch.where((total > 0) & (byte >= 1) & (byte <= 255), byte, 0)


def _scale(scale_byte: Tensor) -> Tensor:
    """[..., 1] integers -> [..., 1] fp32."""
    scale_bits = (scale_byte.long() + OFFSET) << FRACTION
    return torch.where(scale_byte > 0, scale_bits, 0).to(torch.int32).view(torch.float32)


def _power_of_two(biased: Tensor) -> Tensor:
    return (biased << 23).to(torch.int32).view(torch.float32)


def _decode(code: Tensor, count: int) -> Tensor:
    return (from_bits(code[..., 1:], count, 2) - 2).float() * _scale(code[..., :1])

"""`ternary`: blocks of levels -1, 0, 1 times one scale, by the threshold of Ternary Weight Networks.

Li, Zhang, Liu 2016 (arXiv:1605.04711) send the magnitudes above 3/4 of the mean magnitude, as their own mean. So what
is said is orthogonal to what is left, up to the rounding of the scale. With the same scale and the nearest level, where
nothing below half the scale is sent, training loses several times as much: too little is said, in every round.
Here in integers, so that the order of a sum cannot matter. For a block of n values with largest magnitude m,
2**e <= m < 2**(e + 1):

    u_i   = floor(|y_i| * 2**(12 - e))                  0 .. 8191
    t     = floor(3 * sum(u) / (4 * n))
    level = the sign of y_i where u_i > t, else 0
    mean  = fl(fl(S) / fl(c)),  S, c: sum and number of the u_i above t
    scale = mean * 2**(e - 12), rounded to 1, 1.25, 1.5 or 1.75 times a power of two, halves up; at most 1.75 * 2**15
    scale = 0, level = 0        where that is not above 2**-48, e < -64, or m is not finite
    code  = level + 2, in 2 bits

The scale is one byte: its exponent (from -48) in the upper six bits, its bits of fraction in the lowest two; 0 is zero.
Finer scales did not train better. Blocks of one row follow each other, each as its scale and its codes (lowest bits
first). Cost: 1 / block bytes a value and 2 bits.

y - level * scale is exact where level is 0, and where half the scale <= |y| (as for `linear`; and the mean is at least
1, so that the scale's lowest bit, worth at least 2**(e - 14), is a multiple of y's last place). A sent magnitude below
half the scale leaves more than it has bits for, and so does one above 2**37, beyond all scales: there the error is
rounded to fp32, by at most 2**-24 of itself.
What is beyond the scale of a level stays in the residual and is sent in the next rounds.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trainingkit.kernels.reference.blocks import decode_blocks, encode_blocks, finite_blocks
from trainingkit.kernels.reference.formats.base import FORMATS
from trainingkit.kernels.reference.littleendian import from_bits, to_bits
from trainingkit.kernels.rowplan import RowPlan

STEPS = 12
"""A magnitude is at least `2**STEPS` steps, where it is the largest of its block."""
LEAST_EXPONENT = -64
FRACTION = 21
"""Bits of a float below the two that a scale keeps."""
OFFSET = 316
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
    scale_byte, is_sent = _measured(values.abs())
    level = torch.where(is_sent & (scale_byte > 0), values.sign(), 0.0)
    return torch.cat([scale_byte.to(torch.uint8), to_bits(level.long() + 2, 2)], dim=-1), level * _scale(scale_byte)


def _measured(magnitudes: Tensor) -> tuple[Tensor, Tensor]:
    """[rows, blocks, n] fp32 -> [rows, blocks, 1] int64, 0 .. 255, and [rows, blocks, n] bool, what is above t."""
    exponent = (magnitudes.amax(-1, keepdim=True).view(torch.int32).long() >> 23) - 127
    to_steps = _power_of_two(127 + STEPS - exponent.clamp(min=LEAST_EXPONENT))
    steps = (magnitudes * to_steps).long()
    large = steps > 3 * steps.sum(-1, keepdim=True) // (4 * magnitudes.shape[-1])
    total, count = (steps * large).sum(-1, keepdim=True), large.sum(-1, keepdim=True)
    mean = (total.float() / count.clamp(min=1).float()).view(torch.int32).long()
    scale_bits = mean + ((exponent - STEPS) << 23)
    byte = ((scale_bits + (1 << FRACTION - 1)) >> FRACTION) - OFFSET
    known = (total > 0) & (byte >= 1) & (exponent >= LEAST_EXPONENT)
    return torch.where(known, byte.clamp(max=255), 0), large


def _scale(scale_byte: Tensor) -> Tensor:
    """[..., 1] integers -> [..., 1] fp32."""
    scale_bits = (scale_byte.long() + OFFSET) << FRACTION
    return torch.where(scale_byte > 0, scale_bits, 0).to(torch.int32).view(torch.float32)


def _power_of_two(biased: Tensor) -> Tensor:
    return (biased << 23).to(torch.int32).view(torch.float32)


def _decode(code: Tensor, count: int) -> Tensor:
    return (from_bits(code[..., 1:], count, 2) - 2).float() * _scale(code[..., :1])

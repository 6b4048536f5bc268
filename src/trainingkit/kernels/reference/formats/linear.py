"""`linear`: blocks of signed levels times one bf16 scale, with an error that fp32 holds exactly.

For a block with largest magnitude m, and L = 2**(bits - 1) - 1 levels to each side (2 <= bits <= 8):

    scale = bf16(m / L), rounded up      (down where m >= 2**127, so that L * scale stays finite)
    scale = 0, level = 0                 where the scale would not be a normal number, or m is not finite
    level = round_half_even(y * fl(1 / scale)), within -L .. L
    code  = level + L + 1, in `bits` bits

Blocks of one row follow each other, each as its scale (two bytes, little-endian) and its codes (lowest bits first).

Why y - level * scale is exact, and with it (y - level * scale) + level * scale == y:
- level * scale has at most 7 + 8 significant bits and is not below the scale, which is normal: the product is exact.
- level 0: the error is y.
- level q >= 1 (signs alike): fl(y * fl(1 / scale)) > 1/2. Would y < scale / 2, then y * fl(1 / scale) would be below
  1/2 + 2**-25, which rounds to at most 1/2, which rounds to level 0. So y >= scale / 2; and in general y is within
  a half level (and a relative 2**-23) of q * scale, hence q * scale / 2 <= y <= 2 * q * scale: Sterbenz' lemma says
  that the difference of two such numbers is exact, gradual underflow included. A clamped level only brings q * scale
  nearer to y / 2, never below it: L * scale >= m / (1 + 2**-7).
The sum of the product and the exact difference is y, which is representable, so it is not rounded either. The sign of
a zero is not kept.

Scale rounded up means that no value but those of the largest blocks is clipped. Cost: 2 / block bytes a value and
`bits` bits.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from trainingkit.kernels.reference.blocks import (
    bf16_from_bytes,
    bf16_scale,
    bf16_to_bytes,
    decode_blocks,
    encode_blocks,
    finite_blocks,
    inverse_of,
)
from trainingkit.kernels.reference.formats.base import FORMATS
from trainingkit.kernels.reference.littleendian import from_bits, to_bits
from trainingkit.kernels.rowplan import RowPlan


@FORMATS.register("linear")
class Linear:
    """Signed levels of `plan.bits` bits in blocks of `plan.block`."""

    @staticmethod
    def encode(values: Tensor, plan: RowPlan) -> tuple[Tensor, Tensor]:
        """See `Format.encode`."""
        return encode_blocks(values, plan, partial(_encode, bits=plan.bits))

    @staticmethod
    def decode(code: Tensor, plan: RowPlan) -> Tensor:
        """See `Format.decode`."""
        return decode_blocks(code, plan, partial(_decode, bits=plan.bits))


def _encode(values: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    levels = 2 ** (bits - 1) - 1
    values = finite_blocks(values)
    scale = bf16_scale(values.abs().amax(-1, keepdim=True), levels)
    level = (torch.round(values * inverse_of(scale)) + 0.0).clamp(-levels, levels)
    code = to_bits(level.long() + levels + 1, bits)
    return torch.cat([bf16_to_bytes(scale), code], dim=-1), level * scale


def _decode(code: Tensor, count: int, bits: int) -> Tensor:
    level = from_bits(code[..., 2:], count, bits) - 2 ** (bits - 1)
    return level.float() * bf16_from_bytes(code[..., :2])

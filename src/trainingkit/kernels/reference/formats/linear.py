"""`linear`: blocks of signed levels times one bf16 scale, with an error that fp32 holds exactly.

For a block with largest magnitude m, and L = 2**(bits - 1) - 1 levels to each side (bits >= 4):

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

import torch
from torch import Tensor

from trainingkit.kernels.reference.formats.base import FORMATS
from trainingkit.kernels.reference.littleendian import from_bits, from_bytes, to_bits, to_bytes
from trainingkit.kernels.rowplan import RowPlan

HUGE = 2.0**127
SMALLEST_NORMAL_BITS = 0x00800000


@FORMATS.register("linear")
class Linear:
    """Signed levels of `plan.bits` bits in blocks of `plan.block`."""

    @staticmethod
    def encode(values: Tensor, plan: RowPlan) -> tuple[Tensor, Tensor]:
        """See `Format.encode`."""
        codes, sent = [], []
        for part in _blocks(values, plan.block):
            code, seen = _encode_blocks(part, plan.bits)
            codes.append(code.flatten(1))
            sent.append(seen.flatten(1))
        return torch.cat(codes, dim=1), torch.cat(sent, dim=1)

    @staticmethod
    def decode(code: Tensor, plan: RowPlan) -> Tensor:
        """See `Format.decode`."""
        whole = plan.keep // plan.block
        tail = plan.keep - whole * plan.block
        cut = whole * plan.block_bytes
        parts = [_decode_blocks(code[:, :cut].unflatten(1, (whole, plan.block_bytes)), plan.block, plan.bits)]
        if tail:
            parts.append(_decode_blocks(code[:, cut:].unsqueeze(1), tail, plan.bits))
        return torch.cat([part.flatten(1) for part in parts], dim=1)


def _blocks(values: Tensor, block: int) -> list[Tensor]:
    whole = values.shape[1] // block
    parts = [values[:, : whole * block].unflatten(1, (whole, block))] if whole else []
    tail = values[:, whole * block :]
    return [*parts, tail.unsqueeze(1)] if tail.shape[1] else parts


def _encode_blocks(values: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """[rows, blocks, n] fp32 -> ([rows, blocks, bytes] uint8, [rows, blocks, n] fp32)."""
    levels = 2 ** (bits - 1) - 1
    finite = values.isfinite().all(-1, keepdim=True)
    values = torch.where(finite, values, 0.0)
    top = values.abs().amax(-1, keepdim=True)
    scale = _scale(top, levels)
    inverse = torch.where(scale > 0, 1 / scale, 0.0)
    level = (torch.round(values * inverse) + 0.0).clamp(-levels, levels)
    code = to_bits(level.long() + levels + 1, bits)
    scale_bytes = to_bytes((scale.view(torch.int32) >> 16).flatten(1), 2).unflatten(1, (-1, 2))
    return torch.cat([scale_bytes, code], dim=-1), level * scale


def _scale(top: Tensor, levels: int) -> Tensor:
    """bf16(top / levels) as fp32; rounded up, or down for the largest; 0 where it would not be normal."""
    raw = (top / levels).view(torch.int32)
    scale_bits = torch.where(top < HUGE, raw + 0xFFFF, raw) & ~0xFFFF
    return torch.where(scale_bits >= SMALLEST_NORMAL_BITS, scale_bits, 0).to(torch.int32).view(torch.float32)


def _decode_blocks(code: Tensor, count: int, bits: int) -> Tensor:
    """[rows, blocks, bytes] uint8 -> [rows, blocks, count] fp32."""
    scale = (from_bytes(code[..., :2].flatten(1), 2) << 16).to(torch.int32).view(torch.float32)
    level = from_bits(code[..., 2:], count, bits) - 2 ** (bits - 1)
    return level.float() * scale.unsqueeze(-1)

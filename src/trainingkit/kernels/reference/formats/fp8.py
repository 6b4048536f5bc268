"""`fp8_e4m3` and `fp8_e5m2`: blocks of eight-bit floating point numbers times one bf16 scale, with an exact error.

The formats are those of the OCP 8-bit Floating Point Specification (2023), without its infinities and NaNs. For a block
with largest magnitude m, and F the largest finite number of the format (448 or 57344):

    scale = bf16(m / F), rounded up      (down where m >= 2**127, so that F * scale stays finite)
    scale = 0, all codes 0               where the scale would not be a normal number, or m is not finite
    f     = y * fl(1 / scale), saturated to -F .. F, rounded to the format, ties to even
    code  = f's bits; 0 for a zero of either sign

Blocks of one row follow each other, each as its scale (two bytes, little-endian) and its codes. Cost: 2 / block bytes a
value and 8 bits.

Why y - f * scale is exact, and with it (y - f * scale) + f * scale == y:
- f * scale has at most 4 + 8 significant bits, and its last place is worth at least 2**-16 (the least number of e5m2)
  times 2**-133 (the last place of the least normal bf16): the product is exact, gradual underflow included.
- f 0: the error is y.
- Else f is k times the least number of the format or has 3 (4) significant bits. In the first case the argument of
  `linear` holds with that number times the scale as the scale. In the second, rounding moved y / scale by at most a
  relative 2**-3 (and 2**-23), and saturation by 2**-7: y and f * scale are within a factor of two of each other, and
  Sterbenz' lemma applies.
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
from trainingkit.kernels.rowplan import RowPlan


class _Fp8:
    dtype: torch.dtype

    @classmethod
    def encode(cls, values: Tensor, plan: RowPlan) -> tuple[Tensor, Tensor]:
        """See `Format.encode`."""
        return encode_blocks(values, plan, partial(_encode, dtype=cls.dtype))

    @classmethod
    def decode(cls, code: Tensor, plan: RowPlan) -> Tensor:
        """See `Format.decode`."""
        return decode_blocks(code, plan, partial(_decode, dtype=cls.dtype))


@FORMATS.register("fp8_e4m3")
class E4m3(_Fp8):
    """4 bits of exponent, 3 of fraction: 2**-9 to 448."""

    dtype = torch.float8_e4m3fn


@FORMATS.register("fp8_e5m2")
class E5m2(_Fp8):
    """5 bits of exponent, 2 of fraction: 2**-16 to 57344."""

    dtype = torch.float8_e5m2


def _encode(values: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    largest = torch.finfo(dtype).max
    values = finite_blocks(values)
    scale = bf16_scale(values.abs().amax(-1, keepdim=True), largest)
    rounded = (values * inverse_of(scale)).clamp(-largest, largest).to(dtype)
    number = rounded.float() + 0.0
    code = torch.where(number == 0, 0, rounded.view(torch.uint8)).to(torch.uint8)
    return torch.cat([bf16_to_bytes(scale), code], dim=-1), number * scale


def _decode(code: Tensor, count: int, dtype: torch.dtype) -> Tensor:
    number = code[..., 2:].contiguous().view(dtype).float()
    return number * bf16_from_bytes(code[..., :2])

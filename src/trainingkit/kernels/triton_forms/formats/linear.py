"""`linear` in Triton, 2 to 8 bits: see `trainingkit.kernels.reference.formats.linear` for arithmetic and proof."""

from __future__ import annotations

import triton.language as tl

from trainingkit.kernels.triton_forms.bits import read_bits, write_bits
from trainingkit.kernels.triton_forms.floats import (
    bf16_scale,
    finite_blocks,
    inverse_of,
    nearest_integer,
    read_bf16,
    write_bf16,
)
from trainingkit.kernels.triton_forms.formats.base import FORMATS, Format
from trainingkit.kernels.triton_forms.options import piece


@piece
def encode(values, place, length, BITS: tl.constexpr):
    """See `Format.encode`."""
    LEVELS: tl.constexpr = 2 ** (BITS - 1) - 1
    values, top = finite_blocks(values)
    scale = bf16_scale(top, LEVELS)
    level = nearest_integer(values * inverse_of(scale))
    level = tl.minimum(tl.maximum(level, -LEVELS), LEVELS)
    lane = tl.arange(0, values.shape[1])[None, :]
    code = tl.where(lane < length, level.to(tl.int32) + (LEVELS + 1), 0)
    write_bf16(scale, place, length > 0)
    write_bits(code, place + 2, (length * BITS + 7) // 8, BITS)
    return level * scale.to(tl.float32, bitcast=True)


@piece
def decode(place, length, LANES: tl.constexpr, BITS: tl.constexpr):
    """See `Format.decode`."""
    lane = tl.arange(0, LANES)[None, :]
    code = read_bits(place + 2, lane, lane < length, BITS)
    level = (code - 2 ** (BITS - 1)).to(tl.float32)
    return level * read_bf16(place, length > 0)


FORMATS.register("linear")(Format(encode, decode))

"""`ternary` in Triton: see `trainingkit.kernels.reference.formats.ternary` for the arithmetic."""

from __future__ import annotations

import triton.language as tl

from trainingkit.kernels.triton_forms.bits import read_bits, write_bits
from trainingkit.kernels.triton_forms.floats import ABSOLUTE, finite_blocks
from trainingkit.kernels.triton_forms.formats.base import FORMATS, Format
from trainingkit.kernels.triton_forms.options import piece

STEPS = tl.constexpr(12)
LEAST_EXPONENT = tl.constexpr(-64)
FRACTION = tl.constexpr(21)
HALF = tl.constexpr(1 << 20)
OFFSET = tl.constexpr(316)


@piece
def measured(values, top, length):
    """[blocks, lanes] fp32, the bits of the largest magnitudes, the lengths -> [blocks, 1] int32, 0 to 255, the scale's
    byte, and [blocks, lanes] bool, what is above the threshold.
    """
    exponent = (top >> 23) - 127
    to_steps = ((-tl.maximum(exponent, LEAST_EXPONENT) + (127 + STEPS)) << 23).to(tl.float32, bitcast=True)
    magnitudes = (values.to(tl.int32, bitcast=True) & ABSOLUTE).to(tl.float32, bitcast=True)
    steps = (magnitudes * to_steps).to(tl.int32)
    threshold = tl.sum(3 * steps, axis=1, keep_dims=True) // (4 * tl.maximum(length, 1))  # pyright: ignore[reportOperatorIssue]
    large = steps > threshold
    total = tl.sum(tl.where(large, steps, 0), axis=1, keep_dims=True)
    count = tl.sum(large.to(tl.int32), axis=1, keep_dims=True)
    mean = tl.div_rn(total.to(tl.float32), tl.maximum(count, 1).to(tl.float32)).to(tl.int32, bitcast=True)
    scale = mean + ((exponent - STEPS) << 23)
    byte = tl.minimum(((scale + HALF) >> FRACTION) - OFFSET, 255)
    known = (count > 0) & (byte >= 1) & (exponent >= LEAST_EXPONENT)  # pyright: ignore[reportOperatorIssue]
    return tl.where(known, byte, 0), large


@piece
def scale_bits(byte):
    """A scale byte -> the bits of the fp32 it stands for."""
    return tl.where(byte > 0, (byte + OFFSET) << FRACTION, 0)


@piece
def encode(values, place, length, BITS: tl.constexpr):
    """See `Format.encode`."""
    values, top = finite_blocks(values)
    byte, large = measured(values, top, length)
    level = tl.where(large & (byte > 0), tl.where(values > 0, 1, -1), 0)
    lane = tl.arange(0, values.shape[1])[None, :]
    tl.store(place, byte.to(tl.uint8), mask=length > 0)
    write_bits(tl.where(lane < length, level + 2, 0), place + 1, (length + 3) // 4, 2)
    return level.to(tl.float32) * scale_bits(byte).to(tl.float32, bitcast=True)


@piece
def decode(place, length, LANES: tl.constexpr, BITS: tl.constexpr):
    """See `Format.decode`."""
    lane = tl.arange(0, LANES)[None, :]
    level = (read_bits(place + 1, lane, lane < length, 2) - 2).to(tl.float32)
    byte = tl.load(place, mask=length > 0, other=0).to(tl.int32)
    return level * scale_bits(byte).to(tl.float32, bitcast=True)


FORMATS.register("ternary")(Format(encode, decode))

"""Floats as integers: magnitudes, rounding, and the bf16 scale of a block."""

from __future__ import annotations

import triton.language as tl

from trainingkit.kernels.triton_forms.options import piece

ABSOLUTE = tl.constexpr(0x7FFFFFFF)
INFINITE = tl.constexpr(0x7F800000)
HUGE = tl.constexpr(0x7F000000)
SMALLEST_NORMAL = tl.constexpr(0x00800000)
UPPER_HALF = tl.constexpr(0x7FFF0000)
ROUND = tl.constexpr(12582912.0)


@piece
def magnitude_of(values):
    """The bits of |value|: they order as |value| does, with infinity and NaN above all numbers."""
    return values.to(tl.int32, bitcast=True) & ABSOLUTE


@piece
def nearest_integer(values):
    """Rounded, ties to even, for |value| < 2**22: adding 1.5 * 2**23 leaves no room for a fraction. Never -0."""
    return (values + ROUND) - ROUND


@piece
def finite_blocks(values):
    """[blocks, lanes] fp32 -> the values, zeros in blocks that are not finite; and the largest magnitudes' bits."""
    top = tl.max(magnitude_of(values), axis=1, keep_dims=True)
    finite = top < INFINITE
    return tl.where(finite, values, 0.0), tl.where(finite, top, 0)


@piece
def bf16_scale(top, LARGEST: tl.constexpr):
    """Bits of the largest magnitude -> bits of bf16(top / LARGEST), rounded as the reference says."""
    size = top.to(tl.float32, bitcast=True)
    raw = tl.div_rn(size, tl.full(size.shape, LARGEST, tl.float32)).to(tl.int32, bitcast=True)
    scale = tl.where(top < HUGE, raw + 0xFFFF, raw) & UPPER_HALF
    return tl.where(scale >= SMALLEST_NORMAL, scale, 0)


@piece
def inverse_of(scale):
    """Bits of a scale -> fl(1 / scale), or 0 for a scale of 0."""
    divisor = tl.where(scale > 0, scale, SMALLEST_NORMAL).to(tl.float32, bitcast=True)
    inverse = tl.div_rn(tl.full(divisor.shape, 1.0, tl.float32), divisor)
    return tl.where(scale > 0, inverse, 0.0)


@piece
def write_bf16(scale, place, valid):
    """The upper two bytes of the bits `scale`, lowest first."""
    tl.store(place, ((scale >> 16) & 0xFF).to(tl.uint8), mask=valid)
    tl.store(place + 1, (scale >> 24).to(tl.uint8), mask=valid)


@piece
def read_bf16(place, valid):
    """The fp32 whose upper two bytes are at `place`; 0 where not `valid`."""
    low = tl.load(place, mask=valid, other=0).to(tl.int32)
    high = tl.load(place + 1, mask=valid, other=0).to(tl.int32)
    return ((low << 16) | (high << 24)).to(tl.float32, bitcast=True)

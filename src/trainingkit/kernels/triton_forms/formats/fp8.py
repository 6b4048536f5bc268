"""`fp8_e4m3` and `fp8_e5m2` in Triton: see `trainingkit.kernels.reference.formats.fp8`.

Rounding is integer arithmetic on the bits of a float, since what a conversion instruction does differs by chip.
"""

from __future__ import annotations

import triton.language as tl

from trainingkit.kernels.triton_forms.bits import read_bits, write_bits
from trainingkit.kernels.triton_forms.floats import (
    ABSOLUTE,
    bf16_scale,
    finite_blocks,
    inverse_of,
    magnitude_of,
    nearest_integer,
    read_bf16,
    write_bf16,
)
from trainingkit.kernels.triton_forms.formats.base import FORMATS, Format
from trainingkit.kernels.triton_forms.options import piece

NOT_A_NUMBER = tl.constexpr(0x7FC00000)


@piece
def to_fp8(values, FRACTION: tl.constexpr, BIAS: tl.constexpr):
    """The lower 7 bits of the nearest number of the format, ties to even, for |value| up to its largest number."""
    CUT: tl.constexpr = 23 - FRACTION
    bits = magnitude_of(values)
    normal = (bits + (2 ** (CUT - 1) - 1) + ((bits >> CUT) & 1)) >> CUT
    is_normal = bits >= ((128 - BIAS) << 23)
    tiny = tl.where(is_normal, 0, bits).to(tl.float32, bitcast=True)
    STEPS: tl.constexpr = 2.0 ** (BIAS - 1 + FRACTION)
    small = nearest_integer(tiny * STEPS).to(tl.int32)
    return tl.where(is_normal, normal - ((127 - BIAS) << FRACTION), small)


@piece
def from_fp8(code, FRACTION: tl.constexpr, BIAS: tl.constexpr):
    """The fp32 of an 8-bit code; what is no number in the format becomes infinity or NaN, as its specification says."""
    low = code & 0x7F
    normal = (low << (23 - FRACTION)) + ((127 - BIAS) << 23)
    if FRACTION == 3:
        normal = tl.where(low == 0x7F, NOT_A_NUMBER, normal)
    else:
        normal = tl.where(low >= 0x7C, normal + ((127 - BIAS) << 23), normal)
    STEP: tl.constexpr = 2.0 ** (1 - BIAS - FRACTION)
    small = (low.to(tl.float32) * STEP).to(tl.int32, bitcast=True)
    bits = tl.where(low < 2**FRACTION, small, normal)
    return tl.where(code >= 0x80, bits | ~ABSOLUTE, bits).to(tl.float32, bitcast=True)


@piece
def encode(values, place, length, LARGEST: tl.constexpr, FRACTION: tl.constexpr, BIAS: tl.constexpr):
    """See `Format.encode`."""
    values, top = finite_blocks(values)
    scale = bf16_scale(top, LARGEST)
    wanted = tl.minimum(tl.maximum(values * inverse_of(scale), -LARGEST), LARGEST)
    low = to_fp8(wanted, FRACTION, BIAS)
    code = tl.where((wanted < 0) & (low > 0), low | 0x80, low)
    lane = tl.arange(0, values.shape[1])[None, :]
    write_bf16(scale, place, length > 0)
    write_bits(tl.where(lane < length, code, 0), place + 2, length, 8)
    return from_fp8(code, FRACTION, BIAS) * scale.to(tl.float32, bitcast=True)


@piece
def decode(place, length, LANES: tl.constexpr, FRACTION: tl.constexpr, BIAS: tl.constexpr):
    """See `Format.decode`."""
    lane = tl.arange(0, LANES)[None, :]
    code = read_bits(place + 2, lane, lane < length, 8)
    return from_fp8(code, FRACTION, BIAS) * read_bf16(place, length > 0)


@piece
def encode_e4m3(values, place, length, BITS: tl.constexpr):
    """See `Format.encode`."""
    return encode(values, place, length, 448.0, 3, 7)


@piece
def decode_e4m3(place, length, LANES: tl.constexpr, BITS: tl.constexpr):
    """See `Format.decode`."""
    return decode(place, length, LANES, 3, 7)


@piece
def encode_e5m2(values, place, length, BITS: tl.constexpr):
    """See `Format.encode`."""
    return encode(values, place, length, 57344.0, 2, 15)


@piece
def decode_e5m2(place, length, LANES: tl.constexpr, BITS: tl.constexpr):
    """See `Format.decode`."""
    return decode(place, length, LANES, 2, 15)


FORMATS.register("fp8_e4m3")(Format(encode_e4m3, decode_e4m3))
FORMATS.register("fp8_e5m2")(Format(encode_e5m2, decode_e5m2))

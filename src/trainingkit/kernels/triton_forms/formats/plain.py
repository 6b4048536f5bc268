"""`fp32` and `bf16` in Triton: see `trainingkit.kernels.reference.formats.plain`."""

from __future__ import annotations

import triton.language as tl

from trainingkit.kernels.triton_forms.floats import ABSOLUTE, INFINITE, UPPER_HALF, magnitude_of
from trainingkit.kernels.triton_forms.formats.base import FORMATS, Format
from trainingkit.kernels.triton_forms.options import piece

LARGEST_BF16 = tl.constexpr(0x7F7F0000)


@piece
def write_upper(word, place, length, N_BYTES: tl.constexpr):
    """The upper N_BYTES bytes of each int32 of a tile, lowest first."""
    lane = tl.arange(0, word.shape[1])[None, :]
    for byte in tl.static_range(N_BYTES):  # pyright: ignore[reportGeneralTypeIssues]
        part = (word >> (32 - 8 * N_BYTES + 8 * byte)) & 0xFF
        tl.store(place + lane * N_BYTES + byte, part.to(tl.uint8), mask=lane < length)


@piece
def read_upper(place, length, LANES: tl.constexpr, N_BYTES: tl.constexpr):
    """The inverse of `write_upper`, as fp32."""
    lane = tl.arange(0, LANES)[None, :]
    word = tl.full((length.shape[0], LANES), 0, tl.int32)
    for byte in tl.static_range(N_BYTES):  # pyright: ignore[reportGeneralTypeIssues]
        part = tl.load(place + lane * N_BYTES + byte, mask=lane < length, other=0).to(tl.int32)
        word |= part << (32 - 8 * N_BYTES + 8 * byte)
    return word.to(tl.float32, bitcast=True)


@piece
def encode_fp32(values, place, length, BITS: tl.constexpr):
    """See `Format.encode`."""
    sent = tl.where(magnitude_of(values) < INFINITE, values, 0.0)
    write_upper(sent.to(tl.int32, bitcast=True), place, length, 4)
    return sent


@piece
def decode_fp32(place, length, LANES: tl.constexpr, BITS: tl.constexpr):
    """See `Format.decode`."""
    return read_upper(place, length, LANES, 4)


@piece
def encode_bf16(values, place, length, BITS: tl.constexpr):
    """See `Format.encode`. Rounded to nearest, ties to even, by an addition to the bits."""
    magnitude = magnitude_of(values)
    sign = values.to(tl.int32, bitcast=True) & ~ABSOLUTE
    finite = magnitude < INFINITE
    low = tl.where(finite, magnitude, 0)
    rounded = tl.minimum((low + 0x7FFF + ((low >> 16) & 1)) & UPPER_HALF, LARGEST_BF16)
    word = tl.where(finite, rounded | sign, 0)
    write_upper(word, place, length, 2)
    return word.to(tl.float32, bitcast=True)


@piece
def decode_bf16(place, length, LANES: tl.constexpr, BITS: tl.constexpr):
    """See `Format.decode`."""
    return read_upper(place, length, LANES, 2)


FORMATS.register("fp32")(Format(encode_fp32, decode_fp32))
FORMATS.register("bf16")(Format(encode_bf16, decode_bf16))

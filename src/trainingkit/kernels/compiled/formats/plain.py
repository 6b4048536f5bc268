"""Compiled `fp32` and `bf16` formats: see `trainingkit.kernels.reference.formats.plain`.

A run is coded when the one after it has been summed, so that coding does not wait for memory.
"""

from __future__ import annotations

import numpy as np

from trainingkit.kernels.compiled.formats.base import FORMATS, Format
from trainingkit.kernels.compiled.intrinsics import bits_of, float_of, load_2, load_4, store_2, store_4
from trainingkit.kernels.compiled.magnitude import ABSOLUTE, INFINITE, RUN, add
from trainingkit.kernels.compiled.options import inlined, piece, specialise

LARGEST_BF16 = np.int32(0x7F7F)
BELOW_HALF, ONE, SIGN = np.int32(0x7FFF), np.int32(1), np.int32(0x8000)


def scratch(capacity, block):
    """None is needed."""
    return ()


@inlined
def put_fp32(values, message, offset):
    """Four bytes a value, little-endian; what is sent leaves no error."""
    for i in range(values.size):
        bits = bits_of(values[i])
        finite = np.int32(bits & ABSOLUTE) < INFINITE
        store_4(message, offset + 4 * i, bits if finite else np.int32(0))
        values[i] = np.float32(0) if finite else values[i]
    return offset + 4 * values.size


@inlined
def put_bf16(values, message, offset):
    """The upper half of each value, rounded to the nearest even, at most the largest finite bf16."""
    for i in range(values.size):
        bits = bits_of(values[i])
        magnitude = np.int32(bits & ABSOLUTE)
        odd = np.int32(np.int32(magnitude >> 16) & ONE)
        half = min(np.int32(np.int32(np.int32(magnitude + BELOW_HALF) + odd) >> 16), LARGEST_BF16)
        half = np.int32(half | np.int32(np.int32(bits >> 16) & SIGN)) if magnitude < INFINITE else np.int32(0)
        store_2(message, offset + 2 * i, half)
        values[i] = values[i] - float_of(np.int32(half << 16))
    return offset + 2 * values.size


put = put_fp32


def encode(x, residual, values, block, message, offset, memory):
    """See `Format.encode`."""
    n = values.size
    ahead = min(n, RUN)
    top = add(x, residual, values, 0, ahead)
    for start in range(0, n // RUN * RUN, RUN):
        summed, ahead = ahead, min(n, ahead + RUN)
        top = max(top, add(x, residual, values, summed, ahead))
        offset = put(values[start : start + RUN], message, offset)
    put(values[n // RUN * RUN :], message, offset)
    return top < INFINITE


@piece
def decode_fp32(message, offset, out, block, memory):
    """The inverse of `put_fp32`."""
    for i in range(out.size):
        out[i] = float_of(load_4(message, offset + 4 * i))


@piece
def decode_bf16(message, offset, out, block, memory):
    """The inverse of `put_bf16`."""
    for i in range(out.size):
        out[i] = float_of(np.int32(load_2(message, offset + 2 * i) << 16))


encode_fp32, encode_bf16 = (
    piece(specialise(encode, name, put=part)) for name, part in (("fp32", put_fp32), ("bf16", put_bf16))
)
FORMATS.register("fp32")(Format(scratch, encode_fp32, decode_fp32))
FORMATS.register("bf16")(Format(scratch, encode_bf16, decode_bf16))

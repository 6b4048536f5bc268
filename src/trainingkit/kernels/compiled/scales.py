"""Compiled bf16 scales: see `trainingkit.kernels.reference.blocks`."""

from __future__ import annotations

import numpy as np

from trainingkit.kernels.compiled.intrinsics import bits_of, float_of
from trainingkit.kernels.compiled.magnitude import INFINITE
from trainingkit.kernels.compiled.options import inlined

HUGE = np.int32(0x7F000000)
SMALLEST_NORMAL = np.uint32(0x00800000)
BF16_BYTES = 2


@inlined
def bf16_scale(top, largest):
    """The scale of a block with largest magnitude `top` (as an integer) whose largest number is `largest`."""
    raw = np.uint32(bits_of(float_of(top) / largest))
    up = raw + (np.uint32(0xFFFF) if top < HUGE else np.uint32(0))
    if up < SMALLEST_NORMAL or top >= INFINITE:
        return np.float32(0)
    return float_of(np.int32(up & np.uint32(0xFFFF0000)))


@inlined
def inverse_of(scale):
    """fl(1 / scale), or 0 for a scale of 0."""
    return np.float32(1) / scale if scale > 0 else np.float32(0)


@inlined
def write_bf16(scale, message, offset):
    """The upper half of a float that has no lower half."""
    bits = np.uint32(bits_of(scale))
    message[offset] = np.uint8(bits >> np.uint32(16))
    message[offset + 1] = np.uint8(bits >> np.uint32(24))


@inlined
def read_bf16(message, offset):
    """The inverse of `write_bf16`."""
    low, high = np.uint32(message[offset]), np.uint32(message[offset + 1])
    return float_of(np.int32((low << np.uint32(16)) | (high << np.uint32(24))))

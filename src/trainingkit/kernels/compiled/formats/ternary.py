"""Compiled `ternary` format: see `trainingkit.kernels.reference.formats.ternary` for the arithmetic."""

from __future__ import annotations

import numpy as np

from trainingkit.kernels.compiled.blocks import build
from trainingkit.kernels.compiled.formats.base import FORMATS
from trainingkit.kernels.compiled.intrinsics import bits_of, float_of
from trainingkit.kernels.compiled.magnitude import ABSOLUTE, RUN
from trainingkit.kernels.compiled.options import inlined

STEPS, OFFSET, LARGEST = 12, 316, 255
HALF, FRACTION = np.int32(1 << 20), np.int32(21)
LEAST_EXPONENT = 127 - 64
ZERO, ONE, NEVER = np.float32(0), np.float32(1), np.float32(np.inf)


@inlined
def steps_of(value, to_steps):
    """The magnitude in whole steps."""
    return np.int32(float_of(np.int32(bits_of(value) & ABSOLUTE)) * to_steps)


@inlined
def sum_steps(values, to_steps):
    """Sum of the magnitudes in steps; the order does not matter."""
    total = np.int32(0)
    for first in range(0, values.size // RUN * RUN, RUN):
        part = values[first : first + RUN]
        for j in range(RUN):
            total = np.int32(total + steps_of(part[j], to_steps))
    for i in range(values.size // RUN * RUN, values.size):
        total = np.int32(total + steps_of(values[i], to_steps))
    return total


@inlined
def sum_large(values, to_steps, threshold):
    """Sum and number of the magnitudes above `threshold` steps."""
    total, count = np.int32(0), np.int32(0)
    for first in range(0, values.size // RUN * RUN, RUN):
        part = values[first : first + RUN]
        for j in range(RUN):
            steps = steps_of(part[j], to_steps)
            total = np.int32(total + (steps if steps > threshold else np.int32(0)))
            count = np.int32(count + np.int32(steps > threshold))
    for i in range(values.size // RUN * RUN, values.size):
        steps = steps_of(values[i], to_steps)
        total = np.int32(total + (steps if steps > threshold else np.int32(0)))
        count = np.int32(count + np.int32(steps > threshold))
    return total, count


@inlined
def scale_of(values, count, top):
    """The mean of the magnitudes above 3/4 of the mean, to two bits of fraction, and the least of what is above."""
    exponent = np.int32(top >> 23)
    if exponent < LEAST_EXPONENT:
        return ZERO, NEVER
    to_steps = float_of(np.int32((2 * 127 + STEPS - exponent) << 23))
    threshold = np.int32(3 * np.int64(sum_steps(values, to_steps)) // (4 * count))
    total, large = sum_large(values, to_steps, threshold)
    mean = np.int64(bits_of(np.float32(total) / np.float32(large)))
    byte = ((mean + (np.int64(exponent - 127 - STEPS) << 23) + HALF) >> FRACTION) - OFFSET
    if byte < 1:
        return ZERO, NEVER
    least = np.float32(np.int32(threshold + 1)) * float_of(np.int32((exponent - STEPS) << 23))
    return float_of(np.int32((min(byte, LARGEST) + OFFSET) << FRACTION)), least


@inlined
def write_scale(scale, message, offset):
    """One byte: 0, or the upper bits of the float from `OFFSET` on."""
    upper = bits_of(scale) >> FRACTION
    message[offset] = np.uint8(upper - OFFSET if upper else 0)


@inlined
def read_scale(message, offset):
    """The inverse of `write_scale`."""
    byte = np.int32(message[offset])
    return float_of(np.int32((byte + OFFSET) << FRACTION)) if byte else np.float32(0)


@inlined
def to_code(value, least):
    """A level, from 1 up."""
    level = ONE if value >= least else (-ONE if value <= -least else ZERO)
    return np.uint8(np.int32(level) + 2), level


@inlined
def from_code(code):
    """The level."""
    return np.float32(np.int32(code) - 2)


_SCALE = {"SCALE_BYTES": 1, "write_scale": write_scale, "read_scale": read_scale}
FORMATS.register("ternary")(build("ternary", 2, scale_of, to_code, from_code, ZERO=np.uint8(2), **_SCALE))

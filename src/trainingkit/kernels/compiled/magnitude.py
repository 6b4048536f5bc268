"""Magnitudes as integers: the bits of |y| order as |y| does, with infinity and NaN above all numbers."""

from __future__ import annotations

import numpy as np

from trainingkit.kernels.compiled.options import piece

ABSOLUTE = np.int32(0x7FFFFFFF)
INFINITE = np.int32(0x7F800000)


@piece
def largest(bits):
    """The largest magnitude of a run of float bits (int32), as an integer; 0 for an empty run."""
    top = np.int32(0)
    for i in range(bits.size):
        magnitude = bits[i] & ABSOLUTE
        top = magnitude if magnitude > top else top
    return top


@piece
def count_reaching(bits, threshold):
    """How many magnitudes are >= `threshold`."""
    count = np.uint32(0)
    for i in range(bits.size):
        count = np.uint32(count + np.uint32((bits[i] & ABSOLUTE) >= threshold))
    return np.int64(count)


@piece
def add(x, residual, y):
    """y = x + residual, or x where there is no residual (size 0). Returns the largest magnitude."""
    top = np.int32(0)
    if residual.size == 0:
        for i in range(y.size):
            y[i] = x[i]
        return largest(y.view(np.int32))
    for i in range(y.size):
        total = x[i] + residual[i]
        y[i] = total
        magnitude = np.float32(total).view(np.int32) & ABSOLUTE
        top = magnitude if magnitude > top else top
    return top

"""Magnitudes as integers: the bits of |y| order as |y| does, with infinity and NaN above all numbers."""

from __future__ import annotations

import numpy as np

from trainingkit.kernels.compiled.intrinsics import add_64, copy_64, prefetch
from trainingkit.kernels.compiled.options import inlined, piece

ABSOLUTE = np.int32(0x7FFFFFFF)
INFINITE = np.int32(0x7F800000)
LINE = 16
RUN = 64
"""Loops of this fixed length become a few vector instructions."""


@inlined
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


@inlined
def add(x, residual, y, start, stop):
    """y = x + residual, or x where there is no residual (size 0). Returns the largest magnitude."""
    summed = residual.size > 0
    if stop - start == RUN:
        return add_64(x, residual, y, start) if summed else copy_64(x, y, start)
    top = np.int32(0)
    whole = start + (stop - start) // RUN * RUN
    for first in range(start, whole, RUN):
        top = max(top, add_64(x, residual, y, first) if summed else copy_64(x, y, first))
    if whole < stop:
        for i in range(whole, stop):
            y[i] = x[i] + residual[i] if summed else x[i]
        top = max(top, largest(y[whole:stop].view(np.int32)))
    return top


@piece
def ask_ahead(x, residual, y, start, stop):
    """Ask for the lines of a stretch of all three arrays, so that memory works while the processor counts."""
    for i in range(start, stop, LINE):
        prefetch(x, i)
        prefetch(residual, i)
        prefetch(y, i)

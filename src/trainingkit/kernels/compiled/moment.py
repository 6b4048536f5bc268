"""Compiled passes over a second moment: see `trainingkit.kernels.moments.base` for what they compute."""

from __future__ import annotations

import math

import numpy as np

from trainingkit.kernels.compiled.options import inlined, piece

TILE = 1024
RUN = 64


@inlined
def follow_run(mean, square, share, roots):
    """The squares that follow, over `mean`, and their roots."""
    for i in range(mean.size):
        following = (mean[i] * mean[i] - square[i]) * share + square[i]
        mean[i] = following
        roots[i] = math.sqrt(following)


@inlined
def fold_tile(roots):
    """The sum of a tile, halves upon halves; the tile is overwritten."""
    half = TILE // 2
    while half > 0:
        for i in range(half):
            roots[i] = roots[i] + roots[half + i]
        half //= 2
    return roots[0]


@piece
def fold(sums, count):
    """The sum of `count` numbers, halves upon halves, the last of an odd number to the first; they are overwritten."""
    while count > 1:
        half = count // 2
        for i in range(half):
            sums[i] = sums[i] + sums[half + i]
        if count % 2:
            sums[0] = sums[0] + sums[count - 1]
        count = half
    return sums[0]


def follow(mean, square, share, roots, sums):
    """See `MomentKernel.follow`; `roots` is memory for a tile, `sums` for one number a tile."""
    whole = mean.size // TILE * TILE
    for start in range(0, whole, TILE):
        follow_run(mean[start : start + TILE], square[start : start + TILE], share, roots)
        sums[start // TILE] = fold_tile(roots)
    if whole < mean.size:
        roots[:] = 0
        follow_run(mean[whole:], square[whole:], share, roots)
        sums[whole // TILE] = fold_tile(roots)
    return fold(sums, sums.size)


@inlined
def settle_run(square, floor, unit, one, other):
    """See `MomentKernel.settle`, for a stretch."""
    for i in range(square.size):
        root = np.float32(math.sqrt(square[i]))
        following = root if root > floor else floor
        change = unit[i] / following
        unit[i] = following
        one[i] = one[i] * change
        if other.size:
            other[i] = other[i] * change


def settle(square, floor, unit, one, other):
    """See `MomentKernel.settle`; `other` may be empty."""
    whole = square.size // RUN * RUN
    for start in range(0, whole, RUN):
        stop = start + RUN
        settle_run(square[start:stop], floor, unit[start:stop], one[start:stop], other[start:stop])
    settle_run(square[whole:], floor, unit[whole:], one[whole:], other[whole:])

"""Seconds of a matrix product by its shape: tiles, waves over the multiprocessors, start-up of a tile, memory traffic.

A product of (m x k) by (k x n) is cut into tiles; `waves = ceil(tiles / multiprocessors)` run one after the other, so
that a little more than a full wave costs a whole one. A long inner dimension may be split, so that few tiles fill the
device. Each tile costs a fixed time to fill its pipeline and to write its result. The best of all cuts is taken, as
vendor libraries choose by heuristics. It is never faster than the device's achievable rate, or its memory.
Source: NVIDIA, "Matrix Multiplication Background" (tile and wave quantization).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

TILES = ((256, 128, 1.0), (128, 128, 0.96), (128, 64, 0.8), (64, 64, 0.6))
"""Rows, columns, and the share of a multiprocessor's rate that a tile of that size reaches."""
SPLITS = (1, 2, 4, 8, 16)
TILE_START_S = 1.2e-6
KERNEL_START_S = 3e-6
MEMORY_SHARE = 0.82
"""Share of the data-sheet memory bandwidth that streaming kernels reach."""


ALIGNED = {32: 1.0, 16: 0.95, 8: 0.85}
"""Rate by the largest of these that divides the inner and the column length (16 bits: 8 values are 16 bytes)."""

RAGGED = 0.4
"""Rate where only the result's rows are no whole words."""


@dataclass(frozen=True)
class Chip:
    """What the formulas need of a device: matrix rate (flop/s), multiprocessors, memory bandwidth (bytes/s).

    `scalar` is the rate of what the matrix units cannot take: lengths that are no multiple of 8 values.
    """

    rate: float
    units: int
    memory: float
    scalar: float


@lru_cache(maxsize=200_000)
def gemm_seconds(chip: Chip, m: int, n: int, k: int, batch: int = 1, width: int = 2) -> float:
    """Seconds of `batch` products of (m x k) by (k x n), operands of `width` bytes, result of two."""
    unit_rate = aligned_rate(chip, n, k) / chip.units
    best = math.inf
    for rows, columns, share in TILES:
        tiles = math.ceil(m / rows) * math.ceil(n / columns) * batch
        for split in SPLITS:
            inner = math.ceil(k / split)
            if split > 1 and inner < 512:
                break
            one = 2.0 * rows * columns * inner / (unit_rate * share) + TILE_START_S
            merge = (split - 1) * m * n * batch * 8.0 / chip.memory if split > 1 else 0.0
            best = min(best, math.ceil(tiles * split / chip.units) * one + merge)
    moved = batch * (width * (m * k + k * n) + 2.0 * m * n)
    return max(best, moved / chip.memory) + KERNEL_START_S


def aligned_rate(chip: Chip, n: int, k: int) -> float:
    """The matrix rate for rows of `n` and `k` values: whole 16-byte words, or the scalar units' rate."""
    if k % 8:
        return min(chip.scalar, chip.rate)
    return chip.rate * next((share for step, share in ALIGNED.items() if n % step == 0 and k % step == 0), RAGGED)


def stream_seconds(chip: Chip, n_bytes: float, kernels: float = 1.0) -> float:
    """Seconds to move `n_bytes` through the device's memory in so many kernels."""
    return n_bytes / chip.memory + kernels * KERNEL_START_S

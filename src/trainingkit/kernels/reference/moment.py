"""Roots of a second moment that are the same everywhere, and their sum in an order of its own."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

TILE = 1024


def roots_of(square: Tensor) -> Tensor:
    """The roots of [elements] fp32, each rounded to the nearest fp32.

    `torch.sqrt` of fp32 may round otherwise: by MKL, a fifth of its results can be off by the last bit. The root of an
    fp32 number is never so near the middle of two fp32 numbers that the last bit of a root in fp64 would matter.
    """
    return square.double().sqrt_().float()


def sum_of_roots(square: Tensor) -> float:
    """The sum that `MomentKernel.follow` returns, of [elements] fp32."""
    roots = roots_of(square)
    tiles = F.pad(roots, (0, -roots.numel() % TILE)).view(-1, TILE)
    while tiles.shape[1] > 1:
        half = tiles.shape[1] // 2
        tiles = tiles[:, :half] + tiles[:, half:]
    return _folded(tiles.flatten())


def _folded(values: Tensor) -> float:
    while values.numel() > 1:
        half, odd = divmod(values.numel(), 2)
        folded = values[:half] + values[half : 2 * half]
        if odd:
            folded[0] += values[-1]
        values = folded
    return float(values.sum())

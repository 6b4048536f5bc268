"""Sets of positions as bits of a fixed number of bytes, lowest bit first."""

from __future__ import annotations

import torch
from torch import Tensor


def to_ones(positions: Tensor, n_bytes: int) -> Tensor:
    """[rows, n] int64, different ones below `8 * n_bytes` -> [rows, n_bytes] uint8 with these bits set."""
    bits = torch.zeros(positions.shape[0], 8 * n_bytes, dtype=torch.int64).scatter(1, positions, 1)
    return (bits.unflatten(1, (n_bytes, 8)) << torch.arange(8)).sum(-1).to(torch.uint8)


def from_ones(code: Tensor, count: int) -> Tensor:
    """[rows, bytes] uint8 -> [rows, count] int64 - ascending positions of the set bits.

    A row in which not exactly `count` are set is damaged: all its positions are -1.
    """
    bits = (code.long().unsqueeze(-1) >> torch.arange(8) & 1).flatten(1)
    positions = torch.where(bits > 0, torch.arange(bits.shape[1]), bits.shape[1]).sort(dim=1).values[:, :count]
    return torch.where(bits.sum(1, keepdim=True) == count, positions, -1)

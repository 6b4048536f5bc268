"""Integers of whole bytes and of any number of bits, lowest first."""

from __future__ import annotations

import torch
from torch import Tensor


def to_bytes(numbers: Tensor, n_bytes: int) -> Tensor:
    """[rows, n] integers -> [rows, n * n_bytes] uint8, the low `n_bytes` of each."""
    shifts = torch.arange(0, 8 * n_bytes, 8)
    return (numbers.long().unsqueeze(-1) >> shifts & 0xFF).flatten(1).to(torch.uint8)


def from_bytes(code: Tensor, n_bytes: int) -> Tensor:
    """[rows, n * n_bytes] uint8 -> [rows, n] int64, not negative."""
    shifts = torch.arange(0, 8 * n_bytes, 8)
    return (code.long().unflatten(-1, (-1, n_bytes)) << shifts).sum(-1)


def to_bits(numbers: Tensor, width: int) -> Tensor:
    """[..., n] integers in 0 .. 2**width - 1 -> [..., ceil(n * width / 8)] uint8; zero bits fill the last byte."""
    bits = (numbers.long().unsqueeze(-1) >> torch.arange(width) & 1).flatten(-2)
    bits = torch.nn.functional.pad(bits, (0, -bits.shape[-1] % 8))
    return (bits.unflatten(-1, (bits.shape[-1] // 8, 8)) << torch.arange(8)).sum(-1).to(torch.uint8)


def from_bits(code: Tensor, count: int, width: int) -> Tensor:
    """The inverse of `to_bits`: [..., bytes] uint8 -> [..., count] int64."""
    bits = (code.long().unsqueeze(-1) >> torch.arange(8) & 1).flatten(-2)[..., : count * width]
    return (bits.unflatten(-1, (count, width)) << torch.arange(width)).sum(-1)

"""Linear levels -L .. L times the block's scale, L = 2**(b-1) - 1: int8, int4, int3, and int2, which is ternary.

Rounding is to nearest, or stochastic and then unbiased (QSGD, Alistarh et al., NeurIPS 2017).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trainingkit.bench.frontier.coders.form import SCALE_BITS, Key, as_bf16, by_rows, inverse, row_bits

SCALE_UP = 1 + 2**-8
"""Half a bf16 step: a scale enlarged by it and then rounded is not below the exact one."""


@dataclass(frozen=True)
class Integers:
    """Levels of `width` bits; the largest magnitude of a block is on the outermost level.

    Args:
        width: bits of a value, 2 to 8.
        block: values that share a bf16 scale.
        stochastic: round up or down by chance, so that the mean is right.
    """

    width: int
    block: int = 64
    stochastic: bool = False

    def bits(self, n: int) -> float:
        """`width` a value and 16 a block."""
        return row_bits(n, self.block, lambda length: SCALE_BITS + float(self.width) * length)

    def said(self, y: Tensor, key: Key) -> Tensor:
        """The rounded values."""
        chance = key.own("rounding") if self.stochastic else None
        return by_rows(y, self.block, lambda rows: self._round(rows, chance))

    def _round(self, rows: Tensor, chance: torch.Generator | None) -> Tensor:
        levels = 2 ** (self.width - 1) - 1
        scale = as_bf16(rows.abs().amax(-1, keepdim=True) / levels * SCALE_UP)
        level = rows * inverse(scale)
        if chance is None:
            level = level.round_()
        else:
            level = level.add_(torch.rand(level.shape, generator=chance)).floor_()
        return level.clamp_(-levels, levels).mul_(scale)

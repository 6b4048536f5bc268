"""One to two magnitudes with signs: sign, ternary and four levels, in one to two bits a value.

A block's statistic (maximum, mean magnitude or root mean square) times fixed thresholds sorts its values into classes;
class c stands for levels[c] times the block's scale. With `fit` the scale is not the statistic but the one of least
squared error, sum |y| l / sum l^2: then what is said is orthogonal to what is left, and its power is not above y's.

    SIGN          1 bit     Seide et al. 2014; Karimireddy et al., EF-signSGD, ICML 2019
    TERNARY_MAX   2 bits    TernGrad's levels (Wen et al., NeurIPS 2017), to nearest
    TERNARY       1.6 bits  thresholds of Ternary Weight Networks (Li et al. 2016), five trits a byte
    FOUR          2 bits    the Lloyd-Max quantiser of a Gaussian (Max 1960)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from trainingkit.bench.frontier.coders.form import SCALE_BITS, Key, as_bf16, by_rows, row_bits

Statistic = Callable[[Tensor], Tensor]


def largest(rows: Tensor) -> Tensor:
    """The largest magnitude of each row, [..., 1]."""
    return rows.abs().amax(-1, keepdim=True)


def mean_magnitude(rows: Tensor) -> Tensor:
    """The mean magnitude of each row, [..., 1]."""
    return rows.abs().mean(-1, keepdim=True)


def root_mean_square(rows: Tensor) -> Tensor:
    """The root of the mean square of each row, [..., 1]."""
    return rows.square().mean(-1, keepdim=True).sqrt()


@dataclass(frozen=True)
class Levels:
    """Which magnitudes there are.

    Args:
        per_byte: values that are packed into a byte; a block ends with a whole one.
        statistic: of a block.
        thresholds: ascending, in units of the statistic.
        levels: one more than thresholds, ascending, in units of the scale.
        fit: whether the scale is of least squared error, instead of the statistic.
    """

    per_byte: int
    statistic: Statistic
    thresholds: tuple[float, ...]
    levels: tuple[float, ...]
    fit: bool


SIGN = Levels(8, mean_magnitude, (), (1.0,), False)
TERNARY_MAX = Levels(4, largest, (0.5,), (0.0, 1.0), False)
TERNARY = Levels(5, mean_magnitude, (0.75,), (0.0, 1.0), True)
FOUR = Levels(4, root_mean_square, (0.9816,), (0.4528, 1.510), True)


@dataclass(frozen=True)
class FewLevels:
    """Signed levels in blocks.

    Args:
        levels: which.
        block: values that share a bf16 scale.
    """

    levels: Levels
    block: int = 64

    def bits(self, n: int) -> float:
        """Whole bytes of packed values and 16 bits of scale, block by block."""
        return row_bits(n, self.block, lambda length: SCALE_BITS + 8.0 * math.ceil(length / self.levels.per_byte))

    def said(self, y: Tensor, key: Key) -> Tensor:
        """The nearest class's level."""
        return by_rows(y, self.block, self._round)

    def _round(self, rows: Tensor) -> Tensor:
        kind = self.levels
        statistic = kind.statistic(rows)
        size = rows.abs()
        unit = torch.full_like(rows, kind.levels[0])
        for threshold, below, above in zip(kind.thresholds, kind.levels[:-1], kind.levels[1:], strict=True):
            unit += (above - below) * (size > threshold * statistic)
        scale = _least_squares(size, unit) if kind.fit else statistic
        return unit.copysign_(rows).mul_(as_bf16(scale))


def _least_squares(size: Tensor, unit: Tensor) -> Tensor:
    """argmin over s of sum (size - s unit)^2 in each row, [..., 1]; 0 where all units are 0."""
    power = unit.square().sum(-1, keepdim=True)
    return (size * unit).sum(-1, keepdim=True) / power.clamp_min(torch.finfo(torch.float32).tiny)

"""The unit of a normalised wire: the root of the agreed second moment, which every rank can compute by itself.

    v = 0.95 v + 0.05 m^2            per element, m the agreed mean gradient; the first m^2 is taken whole
    u = max(sqrt(v), 0.05 mean of sqrt(v) over the parameter);  1 before there is a v

Gradients are divided by u before they are coded and multiplied by it after. What Adam (Kingma, Ba, ICLR 2015) divides
by is divided out before rounding, so that the errors are as even as the optimizer's steps.

Ranks may differ in processor and number of threads, and u must not. So each operation here is one that IEEE 754 rounds
in one way only (no fused multiply-add), and sums have an order of their own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

DECAY = 0.95
FLOOR = 0.05
"""Of the parameter's mean root: the least that is divided by."""


class Moment:
    """Second moment and unit of the elements of one part.

    Args:
        spans: where each parameter's elements are in the part.
        padded: elements of the part with the zeros at its end, whose unit stays 1.

    Attributes:
        square: [padded] fp32, v; zeros where nothing is known.
        unit: [padded] fp32, u.
    """

    def __init__(self, spans: Sequence[slice], padded: int) -> None:
        self.square = torch.zeros(padded)
        self.unit = torch.ones(padded)
        self._spans = tuple(spans)
        self._shares = [1.0] * len(self._spans)
        self._end = max((span.stop for span in self._spans), default=0)

    def propose(self, mean: torch.Tensor) -> None:
        """Turn an agreed mean into the v that follows from it, in place; nothing else changes.

        Args:
            mean: [padded] fp32, in gradients' units.
        """
        for span, share in zip(self._spans, self._shares, strict=True):
            following, square = mean[span], self.square[span]
            following.mul_(following).sub_(square)
            following.mul_(share).add_(square)

    def commit(self, proposed: torch.Tensor) -> torch.Tensor:
        """Take what `propose` made.

        Args:
            proposed: [padded] fp32; it is kept, so the caller must not use it any more.

        Returns:
            [padded] fp32, to be multiplied into what is kept in the old unit, so that it is in the new one. This memory
            is the caller's from now on.
        """
        free, self.square = self.square, proposed
        for index, span in enumerate(self._spans):
            self._follow(index, free[span])
        free[self._end :] = 1.0
        change, self.unit = self.unit.div_(free), free
        return change

    def load(self, index: int, square: torch.Tensor) -> None:
        """Take over a parameter's v, [elements] fp32; u follows from it, to the last bit."""
        span = self._spans[index]
        self.square[span] = square
        self._follow(index, self.unit[span])

    def _follow(self, index: int, unit: torch.Tensor) -> None:
        """Write the unit of a parameter. Squares that fp32 cannot hold are forgotten: it begins anew."""
        square = self.square[self._spans[index]]
        known = write_unit(square, unit)
        self._shares[index] = 1.0 - DECAY if known else 1.0
        if not known:
            square.zero_()


def write_unit(square: torch.Tensor, unit: torch.Tensor) -> bool:
    """Write a parameter's u.

    Args:
        square: [elements] fp32, its v.
        unit: [elements] fp32, overwritten: ones where v is all zeros or not finite.

    Returns:
        Whether v says anything.
    """
    torch.sqrt(square, out=unit)
    total = _sum(unit)
    if not 0.0 < total < math.inf:
        unit.fill_(1.0)
        return False
    unit.clamp_min_(FLOOR * total / unit.numel())
    return True


def unit_of(square: torch.Tensor) -> torch.Tensor:
    """A parameter's u for its v; both [elements] fp32."""
    unit = torch.empty_like(square)
    write_unit(square, unit)
    return unit


def _sum(values: torch.Tensor) -> float:
    """Sum in fp32: the upper half is added to the lower one until one value is left, the same everywhere."""
    while values.numel() > 1:
        half, odd = divmod(values.numel(), 2)
        folded = values[:half] + values[half : 2 * half]
        if odd:
            folded[0] += values[-1]
        values = folded
    return float(values.sum())

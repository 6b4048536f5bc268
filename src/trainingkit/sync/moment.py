"""The unit of a normalised wire: the root of the agreed second moment, which every rank can compute by itself.

    v = 0.95 v + 0.05 m^2            per element, m the agreed mean gradient; the first m^2 is taken whole
    u = max(sqrt(v), 0.05 mean of sqrt(v) over the parameter);  1 before there is a v

Gradients are divided by u before they are coded and multiplied by it after. What Adam (Kingma, Ba, ICLR 2015) divides
by is divided out before rounding, so that the errors are as even as the optimizer's steps.

Ranks may differ in processor and number of threads, and u must not. So each operation is one that IEEE 754 rounds in
one way only (no fused multiply-add), and sums have an order of their own (`kernels.moments`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from trainingkit.kernels.moments import fastest
from trainingkit.kernels.reference.moment import roots_of, sum_of_roots

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
        self._sums = [0.0] * len(self._spans)
        self._kernel = fastest()

    def propose(self, mean: torch.Tensor) -> None:
        """Turn an agreed mean into the v that follows from it, in place; nothing that counts changes.

        Args:
            mean: [padded] fp32, in gradients' units.
        """
        for index, span in enumerate(self._spans):
            self._sums[index] = self._kernel.follow(mean[span], self.square[span], self._shares[index])

    def commit(
        self, proposed: torch.Tensor, own: torch.Tensor, answer: torch.Tensor | None, first: int
    ) -> torch.Tensor:
        """Take what `propose` made last, and bring residuals to the unit that follows from it.

        Args:
            proposed: [padded] fp32; it is kept, so the caller must not use it any more.
            own: [padded] fp32, in the old unit; rewritten.
            answer: [shard] fp32, likewise; or None.
            first: the element that `answer` begins at.

        Returns:
            [padded] fp32 without a meaning; this memory is the caller's from now on.
        """
        free, self.square = self.square, proposed
        for index, span in enumerate(self._spans):
            floor = self._known_floor(index, self._sums[index])
            for part, answered in _split(span, first, 0 if answer is None else answer.numel()):
                residuals = [own[part]]
                if answered and answer is not None:
                    residuals.append(answer[part.start - first : part.stop - first])
                self._kernel.settle(self.square[part], floor, self.unit[part], tuple(residuals))
        return free

    def load(self, index: int, square: torch.Tensor) -> None:
        """Take over a parameter's v, [elements] fp32; u follows from it, to the last bit."""
        span = self._spans[index]
        self.square[span] = square
        self.unit[span] = unit_of(square)
        self._known_floor(index, sum_of_roots(square))

    def _known_floor(self, index: int, total: float) -> float:
        """The least that is divided by. Squares that fp32 cannot hold are forgotten: it begins anew, and u is 1."""
        span = self._spans[index]
        floor = _floor(total, span.stop - span.start)
        self._shares[index] = 1.0 if floor is None else 1.0 - DECAY
        if floor is None:
            self.square[span] = 0.0
        return 1.0 if floor is None else floor


def unit_of(square: torch.Tensor) -> torch.Tensor:
    """A parameter's u for its v; both [elements] fp32. Ones where v is all zeros or not finite."""
    floor = _floor(sum_of_roots(square), square.numel())
    return torch.ones_like(square) if floor is None else roots_of(square).clamp_min_(floor)


def _floor(total: float, elements: int) -> float | None:
    """The least u for the sum of the roots; None where the roots say nothing."""
    return FLOOR * total / elements if 0.0 < total < math.inf else None


def _split(span: slice, first: int, elements: int) -> list[tuple[slice, bool]]:
    """A span cut at both ends of a shard: what is before it, in it (True) and after it; without what is empty."""
    cuts = [min(max(cut, span.start), span.stop) for cut in (span.start, first, first + elements, span.stop)]
    parts = [(slice(cuts[k], cuts[k + 1]), k == 1) for k in range(3)]
    return [(part, answered) for part, answered in parts if part.stop > part.start]

"""SparseLoCo's two bits (Sarfi et al., "Communication Efficient LLM Pre-training with SparseLoCo", 2025; in the code of
Templar): equal bins over six standard deviations, each value said as the mean of the values in its bin.

The bins and their means are those of the whole message: 2**width fp32 means are sent with it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trainingkit.bench.frontier.coder import FP32_BITS
from trainingkit.bench.frontier.coders.form import Key, inverse

HALF_RANGE = 3.0
"""Standard deviations to each side."""


@dataclass(frozen=True)
class Centroids:
    """Equal bins and their means.

    Args:
        width: bits of a value.
    """

    width: int = 2

    def bits(self, n: int) -> float:
        """`width` a value and the table."""
        return float(self.width * n + FP32_BITS * 2**self.width)

    def said(self, y: Tensor, key: Key) -> Tensor:
        """The mean of each value's bin."""
        bins = 2**self.width
        mean, spread = y.mean(1, keepdim=True), y.std(1, correction=0, keepdim=True)
        place = (y - mean) * inverse(2 * HALF_RANGE * spread) * bins + bins / 2
        code = place.floor().clamp(0, bins - 1).long()
        count = torch.zeros(len(y), bins).scatter_add_(1, code, torch.ones_like(y))
        total = torch.zeros(len(y), bins).scatter_add_(1, code, y)
        return (total / count.clamp_min(1)).gather(1, code)

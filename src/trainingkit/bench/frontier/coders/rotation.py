"""Rotate before rounding: random signs, then a Hadamard transform, spread a block's outliers over all its values.

Source: Suresh et al., "Distributed Mean Estimation with Limited Communication", ICML 2017. The signs come from a seed
that all share, and cost nothing on the wire. H of s^2 values is H_s x H_s: two small products, 4 s flops a value.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from trainingkit.bench.frontier.coders.form import Form, Key


@dataclass(frozen=True)
class Rotated:
    """Another form, in rotated coordinates. A rest shorter than a block is not rotated.

    Args:
        form: rounds the rotated values.
        block: values rotated together: 16, 64, 256, 1024 or 4096.
    """

    form: Form
    block: int = 256

    def bits(self, n: int) -> float:
        """As many as the form's."""
        return self.form.bits(n)

    def said(self, y: Tensor, key: Key) -> Tensor:
        """Rotated, rounded, rotated back."""
        messages, n = y.shape
        whole = n - n % self.block
        signs = torch.randint(0, 2, (whole,), generator=key.shared("signs")).float().mul_(2).sub_(1)
        turned = y.clone()
        turned[:, :whole] = _hadamard(y[:, :whole] * signs, self.block)
        rounded = self.form.said(turned, key).clone()
        rounded[:, :whole] = _hadamard(rounded[:, :whole], self.block) * signs
        assert rounded.shape == (messages, n)
        return rounded


def _hadamard(values: Tensor, block: int) -> Tensor:
    """The orthonormal transform of each block, its own inverse. values: [m, whole] fp32."""
    side = math.isqrt(block)
    matrix = _matrix(side)
    return (matrix @ values.reshape(-1, side, side) @ matrix).view(values.shape)


@functools.cache
def _matrix(side: int) -> Tensor:
    """Sylvester's [side, side] fp32 matrix, orthonormal and symmetric."""
    assert side & (side - 1) == 0, "a Hadamard matrix by doubling needs a power of two"
    matrix = torch.ones(1, 1)
    while len(matrix) < side:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return matrix / math.sqrt(side)

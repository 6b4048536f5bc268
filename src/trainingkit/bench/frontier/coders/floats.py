"""Floating-point forms: bfloat16, and 8-bit floats with a scale per block.

Source of the 8-bit formats: Micikevicius et al., "FP8 Formats for Deep Learning", 2022.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trainingkit.bench.frontier.coders.form import SCALE_BITS, Key, as_bf16, by_rows, inverse, row_bits


@dataclass(frozen=True)
class Bf16:
    """Every value rounded to bfloat16."""

    def bits(self, n: int) -> float:
        """16 a value."""
        return 16.0 * n

    def said(self, y: Tensor, key: Key) -> Tensor:
        """Rounded to nearest."""
        return as_bf16(y)


@dataclass(frozen=True)
class Fp8:
    """8-bit floats times a bf16 scale that puts the block's maximum on the format's largest value.

    Args:
        kind: an 8-bit format of torch.
        block: values that share a scale.
    """

    kind: torch.dtype = torch.float8_e4m3fn
    block: int = 256

    def bits(self, n: int) -> float:
        """8 a value and 16 a block."""
        return row_bits(n, self.block, lambda length: SCALE_BITS + 8.0 * length)

    def said(self, y: Tensor, key: Key) -> Tensor:
        """Rounded to nearest, saturating."""
        return by_rows(y, self.block, self._round)

    def _round(self, rows: Tensor) -> Tensor:
        top = torch.finfo(self.kind).max
        scale = as_bf16(rows.abs().amax(-1, keepdim=True) / top)
        return (rows * inverse(scale)).clamp(-top, top).to(self.kind).float() * scale

"""`fp32` and `bf16`: each value on its own, little-endian."""

from __future__ import annotations

import torch
from torch import Tensor

from trainingkit.kernels.reference.formats.base import FORMATS
from trainingkit.kernels.reference.littleendian import from_bytes, to_bytes
from trainingkit.kernels.rowplan import RowPlan

LARGEST_BF16 = torch.finfo(torch.bfloat16).max


@FORMATS.register("fp32")
class Fp32:
    """Four bytes a value: its bits."""

    @staticmethod
    def encode(values: Tensor, plan: RowPlan) -> tuple[Tensor, Tensor]:
        """See `Format.encode`. The error is zero."""
        sent = torch.where(values.isfinite(), values, 0.0)
        return to_bytes(sent.view(torch.int32), 4), sent

    @staticmethod
    def decode(code: Tensor, plan: RowPlan) -> Tensor:
        """See `Format.decode`."""
        return from_bytes(code, 4).to(torch.int32).view(torch.float32)


@FORMATS.register("bf16")
class Bf16:
    """Two bytes a value: the upper half of its bits, rounded to nearest, ties to even, at most the largest finite bf16.

    Rounding moves a value by at most half of a unit in its eighth place, so value and rounded value are within a factor
    of two of each other (or the latter is zero) and their difference is exact (Sterbenz).
    """

    @staticmethod
    def encode(values: Tensor, plan: RowPlan) -> tuple[Tensor, Tensor]:
        """See `Format.encode`."""
        rounded = values.to(torch.bfloat16).float().clamp(-LARGEST_BF16, LARGEST_BF16)
        sent = torch.where(values.isfinite(), rounded, 0.0)
        return to_bytes(sent.view(torch.int32) >> 16, 2), sent

    @staticmethod
    def decode(code: Tensor, plan: RowPlan) -> Tensor:
        """See `Format.decode`."""
        return (from_bytes(code, 2) << 16).to(torch.int32).view(torch.float32)

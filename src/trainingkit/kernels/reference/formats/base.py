"""What a number format is."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from trainingkit.core.registry import Registry
from trainingkit.kernels.rowplan import RowPlan


class Format(Protocol):
    """Values to bytes and back. What is not finite is sent as zero."""

    @staticmethod
    def encode(values: Tensor, plan: RowPlan) -> tuple[Tensor, Tensor]:
        """[rows, keep] fp32 -> ([rows, value_bytes] uint8, [rows, keep] fp32 - the values a reader will see).

        `values - seen` must be exact in fp32 wherever `values` is finite, unless the quantiser says that it is not.
        """
        ...

    @staticmethod
    def decode(code: Tensor, plan: RowPlan) -> Tensor:
        """[rows, value_bytes] uint8 -> [rows, keep] fp32."""
        ...


FORMATS: Registry[type[Format]] = Registry("reference number format", "trainingkit.kernels.reference.formats")

"""What an index packing is."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from trainingkit.core.registry import Registry
from trainingkit.kernels.rowplan import RowPlan


class Packing(Protocol):
    """Indices to bytes and back."""

    @staticmethod
    def pack(indices: Tensor, plan: RowPlan) -> Tensor:
        """[rows, count] int64 -> [rows, index_bytes] uint8."""
        ...

    @staticmethod
    def unpack(code: Tensor, count: int, plan: RowPlan) -> Tensor:
        """[rows, index_bytes] uint8 -> [rows, count] int64. A damaged row gives indices that are no sound row."""
        ...


PACKINGS: Registry[type[Packing]] = Registry("reference packing", "trainingkit.kernels.reference.packings")

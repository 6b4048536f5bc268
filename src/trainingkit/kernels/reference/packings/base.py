"""What an index packing is."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from trainingkit.core.registry import Registry


class Packing(Protocol):
    """Indices to bytes and back."""

    @staticmethod
    def pack(indices: Tensor, width: int) -> Tensor:
        """[rows, keep] int64 -> [rows, index_bytes] uint8."""
        ...

    @staticmethod
    def unpack(code: Tensor, count: int, width: int) -> Tensor:
        """[rows, index_bytes] uint8 -> [rows, count] int64."""
        ...


PACKINGS: Registry[type[Packing]] = Registry("reference packing", "trainingkit.kernels.reference.packings")

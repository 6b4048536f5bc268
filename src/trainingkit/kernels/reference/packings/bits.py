"""`bits`: every index in the same number of bits, lowest bit first."""

from __future__ import annotations

from torch import Tensor

from trainingkit.kernels.reference.littleendian import from_bits, to_bits
from trainingkit.kernels.reference.packings.base import PACKINGS
from trainingkit.kernels.rowplan import RowPlan


@PACKINGS.register("bits")
class Bits:
    """Indices of a fixed width."""

    @staticmethod
    def pack(indices: Tensor, plan: RowPlan) -> Tensor:
        """See `Packing.pack`."""
        return to_bits(indices, plan.index_bits)

    @staticmethod
    def unpack(code: Tensor, count: int, plan: RowPlan) -> Tensor:
        """See `Packing.unpack`."""
        return from_bits(code, count, plan.index_bits)

"""`bitmap`: bit i is set where value i is sent, lowest bit first."""

from __future__ import annotations

from torch import Tensor

from trainingkit.kernels.reference.ones import from_ones, to_ones
from trainingkit.kernels.reference.packings.base import PACKINGS
from trainingkit.kernels.rowplan import RowPlan


@PACKINGS.register("bitmap")
class Bitmap:
    """A bit for each value of the chunk."""

    @staticmethod
    def pack(indices: Tensor, plan: RowPlan) -> Tensor:
        """See `Packing.pack`."""
        return to_ones(indices, plan.index_bytes)

    @staticmethod
    def unpack(code: Tensor, count: int, plan: RowPlan) -> Tensor:
        """See `Packing.unpack`."""
        return from_ones(code, count)

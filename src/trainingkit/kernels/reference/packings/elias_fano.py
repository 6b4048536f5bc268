"""`elias_fano`: the low bits of each index as a number, then the high bits in unary.

With l low bits, index j (from 0) of the row sets bit `(index >> l) + j` of the second part: a set bit for each index,
a clear one wherever the high bits grow by one. See `trainingkit.codec.packings.elias_fano` for the source and the size.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trainingkit.kernels.reference.littleendian import from_bits, to_bits
from trainingkit.kernels.reference.ones import from_ones, to_ones
from trainingkit.kernels.reference.packings.base import PACKINGS
from trainingkit.kernels.rowplan import RowPlan


@PACKINGS.register("elias_fano")
class EliasFano:
    """`plan.index_bits` low bits an index."""

    @staticmethod
    def pack(indices: Tensor, plan: RowPlan) -> Tensor:
        """See `Packing.pack`."""
        low = to_bits(indices & (1 << plan.index_bits) - 1, plan.index_bits)
        high = (indices >> plan.index_bits) + torch.arange(indices.shape[1])
        return torch.cat([low, to_ones(high, plan.index_bytes - low.shape[1])], dim=1)

    @staticmethod
    def unpack(code: Tensor, count: int, plan: RowPlan) -> Tensor:
        """See `Packing.unpack`."""
        low_bytes = (count * plan.index_bits + 7) // 8
        low = from_bits(code[:, :low_bytes], count, plan.index_bits)
        high = from_ones(code[:, low_bytes:], count)
        return torch.where(high < 0, high, ((high - torch.arange(count)) << plan.index_bits) | low)

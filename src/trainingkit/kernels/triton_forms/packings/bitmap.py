"""`bitmap` in Triton: bit i is set where value i is sent."""

from __future__ import annotations

import triton.language as tl

from trainingkit.kernels.rowplan import RowPlan
from trainingkit.kernels.triton_forms.flags import read_flags, write_flags
from trainingkit.kernels.triton_forms.options import piece
from trainingkit.kernels.triton_forms.packings.base import PACKINGS, Packing


def flags(plan: RowPlan) -> int:
    """A bit for each value of the chunk."""
    return 8 * plan.index_bytes


@piece
def pack(index, slot, keep, place, flags, n_bytes, BITS: tl.constexpr, FLAGS: tl.constexpr):
    """See `Packing.pack`."""
    write_flags(index, slot < keep, place, flags, n_bytes, FLAGS)


@piece
def unpack(slot, keep, place, indices, n_bytes, BITS: tl.constexpr, FLAGS: tl.constexpr):
    """See `Packing.unpack`."""
    marked = read_flags(place, n_bytes, FLAGS)
    rank = tl.cumsum(marked, axis=0) - 1
    tl.store(indices + rank, tl.arange(0, FLAGS), mask=(marked > 0) & (rank < keep))
    return tl.sum(marked, axis=0)


PACKINGS.register("bitmap")(Packing(flags, pack, unpack))

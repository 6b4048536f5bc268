"""`elias_fano` in Triton: low bits as numbers, then bit `high + j` set for the j-th index."""

from __future__ import annotations

import triton.language as tl

from trainingkit.kernels.rowplan import RowPlan
from trainingkit.kernels.triton_forms.bits import read_bits, write_bits
from trainingkit.kernels.triton_forms.flags import read_flags, write_flags
from trainingkit.kernels.triton_forms.options import piece
from trainingkit.kernels.triton_forms.packings.base import PACKINGS, Packing


def flags(plan: RowPlan) -> int:
    """The bits of the high parts."""
    return 8 * (plan.index_bytes - (plan.keep * plan.index_bits + 7) // 8)


@piece
def pack(index, slot, keep, place, flags, n_bytes, BITS: tl.constexpr, FLAGS: tl.constexpr):
    """See `Packing.pack`."""
    low_bytes = (keep * BITS + 7) // 8
    if BITS > 0:
        zero = tl.full((1, 1), 0, tl.int32)
        write_bits((index & (2**BITS - 1))[None, :], place + zero, low_bytes + zero, BITS)
    write_flags((index >> BITS) + slot, slot < keep, place + low_bytes, flags, n_bytes - low_bytes, FLAGS)


@piece
def unpack(slot, keep, place, indices, n_bytes, BITS: tl.constexpr, FLAGS: tl.constexpr):
    """See `Packing.unpack`."""
    low_bytes = (keep * BITS + 7) // 8
    marked = read_flags(place + low_bytes, n_bytes - low_bytes, FLAGS)
    rank = tl.cumsum(marked, axis=0) - 1
    valid = (marked > 0) & (rank < keep)
    index = (tl.arange(0, FLAGS) - rank) << BITS
    if BITS > 0:
        index |= read_bits(place, rank, valid, BITS)
    tl.store(indices + rank, index, mask=valid)
    return tl.sum(marked, axis=0)


PACKINGS.register("elias_fano")(Packing(flags, pack, unpack))

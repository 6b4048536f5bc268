"""`bits` in Triton: every index in the same number of bits, lowest bit first."""

from __future__ import annotations

import triton.language as tl

from trainingkit.kernels.rowplan import RowPlan
from trainingkit.kernels.triton_forms.bits import read_bits, write_bits
from trainingkit.kernels.triton_forms.options import piece
from trainingkit.kernels.triton_forms.packings.base import PACKINGS, Packing


def flags(plan: RowPlan) -> int:
    """None."""
    return 0


@piece
def pack(index, slot, keep, place, flags, n_bytes, BITS: tl.constexpr, FLAGS: tl.constexpr):
    """See `Packing.pack`."""
    if BITS > 0:
        zero = tl.full((1, 1), 0, tl.int32)
        write_bits(index[None, :], place + zero, n_bytes + zero, BITS)


@piece
def unpack(slot, keep, place, indices, n_bytes, BITS: tl.constexpr, FLAGS: tl.constexpr):
    """See `Packing.unpack`."""
    valid = slot < keep
    if BITS > 0:
        tl.store(indices + slot, read_bits(place, slot, valid, BITS), mask=valid)
    else:
        tl.store(indices + slot, 0, mask=valid)
    return keep


PACKINGS.register("bits")(Packing(flags, pack, unpack))

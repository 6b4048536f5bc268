"""Compiled `bitmap` packing: a bit for each value of the chunk."""

from __future__ import annotations

from trainingkit.kernels.compiled.options import piece
from trainingkit.kernels.compiled.packings.base import PACKINGS, Packing
from trainingkit.kernels.compiled.words import read_ones, write_ones


@piece
def pack(indices, count, bits, n_bytes, message, offset):
    """See `Packing.pack`."""
    write_ones(indices, count, 0, 0, message, offset, offset + n_bytes)


@piece
def unpack(message, offset, count, bits, n_bytes, limit, indices, spare):
    """See `Packing.unpack`. Set bits ascend by themselves."""
    return read_ones(message, offset, offset + n_bytes, count, indices) and indices[count - 1] < limit


PACKINGS.register("bitmap")(Packing(pack, unpack))

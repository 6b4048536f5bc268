"""Compiled `bits` packing: indices of a fixed width, lowest bit first."""

from __future__ import annotations

from trainingkit.kernels.compiled.options import piece
from trainingkit.kernels.compiled.packings.base import PACKINGS, Packing
from trainingkit.kernels.compiled.words import ascending, read_numbers, write_numbers


@piece
def pack(indices, count, bits, n_bytes, message, offset):
    """See `Packing.pack`."""
    write_numbers(indices, count, bits, message, offset)


@piece
def unpack(message, offset, count, bits, n_bytes, limit, indices, spare):
    """See `Packing.unpack`."""
    read_numbers(message, offset, count, bits, indices)
    return ascending(indices, count, limit)


PACKINGS.register("bits")(Packing(pack, unpack))

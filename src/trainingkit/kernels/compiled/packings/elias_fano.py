"""Compiled `elias_fano` packing: see `trainingkit.kernels.reference.packings.elias_fano`."""

from __future__ import annotations

import numpy as np

from trainingkit.kernels.compiled.options import piece
from trainingkit.kernels.compiled.packings.base import PACKINGS, Packing
from trainingkit.kernels.compiled.words import ascending, read_numbers, read_ones, write_numbers, write_ones


@piece
def pack(indices, count, bits, n_bytes, message, offset):
    """See `Packing.pack`."""
    high = offset + (count * bits + 7) // 8
    write_numbers(indices, count, bits, message, offset)
    write_ones(indices, count, bits, 1, message, high, offset + n_bytes)


@piece
def unpack(message, offset, count, bits, n_bytes, limit, indices, places):
    """See `Packing.unpack`."""
    if not read_ones(message, offset + (count * bits + 7) // 8, offset + n_bytes, count, places):
        return False
    read_numbers(message, offset, count, bits, indices)
    for j in range(count):
        indices[j] |= np.uint32(np.uint32(places[j] - j) << np.uint32(bits))
    return ascending(indices, count, limit)


PACKINGS.register("elias_fano")(Packing(pack, unpack))

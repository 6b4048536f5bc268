"""Sets of positions as bits, through memory that holds one int32 for each bit."""

from __future__ import annotations

import triton.language as tl

from trainingkit.kernels.triton_forms.bits import read_bits, write_bits
from trainingkit.kernels.triton_forms.options import piece


@piece
def write_flags(position, valid, place, flags, n_bytes, FLAGS: tl.constexpr):
    """Write `n_bytes` bytes in which the bits at the valid positions are set, lowest first.

    Args:
        position: [lanes] int32, different ones below 8 * n_bytes.
        flags: pointer to int32 memory for FLAGS numbers, a power of two from 8 * n_bytes on; overwritten.
    """
    lane = tl.arange(0, FLAGS)
    tl.store(flags + lane, 0)
    tl.debug_barrier()
    tl.store(flags + position, 1, mask=valid)
    tl.debug_barrier()
    marked = tl.load(flags + lane)[None, :]
    write_bits(marked, place + tl.full((1, 1), 0, tl.int32), n_bytes + tl.full((1, 1), 0, tl.int32), 1)


@piece
def read_flags(place, n_bytes, FLAGS: tl.constexpr):
    """[FLAGS] int32 - the bits of `n_bytes` bytes, 0 beyond."""
    lane = tl.arange(0, FLAGS)
    return read_bits(place, lane, lane < 8 * n_bytes, 1)

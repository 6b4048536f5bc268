"""Compiled `bits` packing: indices of a fixed width, lowest bit first."""

from __future__ import annotations

import numpy as np

from trainingkit.kernels.compiled.options import piece

BYTE, WORD = np.uint64(8), np.uint64(32)


@piece
def pack(indices, count, width, message, offset):
    """Write `count` indices of `width` bits; the last byte is filled with zero bits."""
    pending, held = np.uint64(0), np.uint64(0)
    for j in range(count):
        pending |= np.uint64(indices[j]) << held
        held += np.uint64(width)
        if held >= WORD:
            for part in range(4):
                message[offset + part] = np.uint8(pending >> np.uint64(8 * part))
            offset += 4
            pending >>= WORD
            held -= WORD
    while held > np.uint64(0):
        message[offset] = np.uint8(pending)
        offset += 1
        pending >>= BYTE
        held -= min(held, BYTE)


@piece
def unpack(message, offset, count, width, limit, indices):
    """Read `count` indices. Returns False unless they ascend and stay below `limit`."""
    mask = (np.uint64(1) << np.uint64(width)) - np.uint64(1)
    pending, held, last, sound = np.uint64(0), np.uint64(0), -1, True
    for j in range(count):
        while held < np.uint64(width):
            pending |= np.uint64(message[offset]) << held
            offset += 1
            held += BYTE
        index = np.int64(pending & mask)
        pending >>= np.uint64(width)
        held -= np.uint64(width)
        sound &= (index > last) & (index < limit)
        indices[j] = np.uint32(index)
        last = index
    return sound

"""Numbers of any width and sets of bits within bytes, moved by whole words: the parts of the index packings."""

from __future__ import annotations

import numpy as np

from trainingkit.kernels.compiled.intrinsics import load_8, set_bits, store_8, trailing_zeros
from trainingkit.kernels.compiled.options import inlined, piece

BYTE, WORD, ONE = np.uint64(8), np.uint64(32), np.uint64(1)
AT_ONCE = 64


@piece
def write_numbers(numbers, count, width, message, offset):
    """Write the low `width` bits of `count` numbers; the last byte is filled with zero bits."""
    mask = (ONE << np.uint64(width)) - ONE
    pending, held = np.uint64(0), np.uint64(0)
    for j in range(count):
        pending |= (np.uint64(numbers[j]) & mask) << held
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
def read_numbers(message, offset, count, width, numbers):
    """The inverse of `write_numbers`, for at most 32 bits a number. Whole words where the message is long enough."""
    mask, end = (ONE << np.uint64(width)) - ONE, offset + ((count * width) >> 3)
    if end + 8 <= message.size:
        for j in range(count):
            start = j * width
            word = load_8(message, offset + (start >> 3)) >> np.uint64(start & 7)
            numbers[j] = np.uint32(word & mask)
    else:
        for j in range(count):
            start = j * width
            word = word_at(message, offset + (start >> 3), message.size) >> np.uint64(start & 7)
            numbers[j] = np.uint32(word & mask)


@piece
def ascending(indices, count, limit):
    """Whether each index is larger than the one before it, and all are below `limit`."""
    sound = True
    for j in range(1, count):
        sound &= indices[j] > indices[j - 1]
    return sound & (indices[count - 1] < limit)


@inlined
def word_at(message, at, end):
    """The eight bytes from `at` on; those from `end` on count as zeros."""
    if at + 8 <= end:
        return load_8(message, at)
    word = np.uint64(0)
    for i in range(at, end):
        word |= np.uint64(message[i]) << np.uint64(8 * (i - at))
    return word


@piece
def write_ones(indices, count, shift, step, message, at, end):
    """Bytes `at` to `end`: bit `(indices[j] >> shift) + step * j` set for every j, the others clear."""
    word, limit = np.uint64(0), AT_ONCE
    for j in range(count):
        place = np.int64(indices[j] >> shift) + step * j
        while place >= limit:
            store_8(message, at, word)
            at += 8
            word, limit = np.uint64(0), limit + AT_ONCE
        word |= ONE << np.uint64(place & 63)
    for i in range(at, end):
        message[i] = np.uint8(word)
        word >>= BYTE


@piece
def read_ones(message, at, end, count, places):
    """The ascending places of the set bits of bytes `at` to `end`. Returns whether there are exactly `count`."""
    found, base = 0, 0
    while at < end:
        word = word_at(message, at, end)
        total = found + np.int64(set_bits(word))
        if total > count:
            return False
        for j in range(found, total):
            places[j] = np.uint32(np.uint64(base) + trailing_zeros(word))
            word &= word - ONE
        found, at, base = total, at + 8, base + AT_ONCE
    return found == count

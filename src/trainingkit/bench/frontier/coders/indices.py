"""How many bits it takes to say which `keep` of `chunk` values were sent: the smallest of what can be packed."""

from __future__ import annotations

import functools
import math

WORD_BITS = 64
"""An enumerative code is practical where the number of choices fits a machine word."""


@functools.cache
def index_bits(keep: int, chunk: int) -> int:
    """The smallest of plain indices, a bitmap, Elias-Fano and, where it fits a word, the number of the combination."""
    found = [plain_bits(keep, chunk), chunk, elias_fano_bits(keep, chunk)]
    choices = math.comb(chunk, keep)
    if choices <= 2**WORD_BITS:
        found.append((choices - 1).bit_length())
    return min(found)


def plain_bits(keep: int, chunk: int) -> int:
    """Each index by itself: 8 bits in 256, 12 in 4096."""
    return keep * (chunk - 1).bit_length()


def elias_fano_bits(keep: int, chunk: int) -> int:
    """Low bits as they are, high bits in unary, with the best split (Elias 1974; Fano 1971): about log2(chunk / keep)
    + 2 bits an index, and a size that does not depend on the indices.
    """
    width = (chunk - 1).bit_length()
    return min(keep * low + keep + ((chunk - 1) >> low) for low in range(width + 1))

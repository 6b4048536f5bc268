"""`elias_fano`: the low bits of each index as a number, the high bits in unary, as distances from one to the next.

Elias, "Efficient storage and retrieval by content and address of static files" (1974) and Fano (1971). About
2 + log2(index_range / count) bits an index, and the size depends on nothing else.
"""

from __future__ import annotations

from trainingkit.codec.packings.base import PACKINGS, Packing


@PACKINGS.register("elias_fano")
class EliasFano(Packing):
    """`l` low bits, for the `l` that takes the fewest bytes; the smallest of those."""

    def index_bits(self, count: int, index_range: int) -> int:
        """The number of low bits."""
        return min(range(index_range.bit_length()), key=lambda low: _bytes(count, index_range, low))

    def index_bytes(self, count: int, index_range: int) -> int:
        """Whole bytes for the low bits, then whole bytes for the high bits."""
        return _bytes(count, index_range, self.index_bits(count, index_range))


def _bytes(count: int, index_range: int, low: int) -> int:
    """A set bit for each index, and a clear one for each time that the high bits grow by one."""
    high = count + (index_range - 1 >> low)
    return (count * low + 7) // 8 + (high + 7) // 8

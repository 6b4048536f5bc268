"""`bits`: every index in the same number of bits."""

from __future__ import annotations

from trainingkit.codec.packings.base import PACKINGS, Packing


@PACKINGS.register("bits")
class Bits(Packing):
    """As few bits as the chunk needs: 12 for 4096, 8 for 256."""

    def index_bits(self, count: int, index_range: int) -> int:
        """ceil(log2(index_range))."""
        return (index_range - 1).bit_length()

    def index_bytes(self, count: int, index_range: int) -> int:
        """Whole bytes per row."""
        return (count * self.index_bits(count, index_range) + 7) // 8

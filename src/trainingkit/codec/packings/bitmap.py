"""`bitmap`: a bit for each value of the chunk, set where it is sent. The smallest from one in four on."""

from __future__ import annotations

from trainingkit.codec.packings.base import PACKINGS, Packing


@PACKINGS.register("bitmap")
class Bitmap(Packing):
    """One bit a value, however many are sent."""

    def index_bits(self, count: int, index_range: int) -> int:
        """No index is written as a number."""
        return 0

    def index_bytes(self, count: int, index_range: int) -> int:
        """Whole bytes per row."""
        return (index_range + 7) // 8

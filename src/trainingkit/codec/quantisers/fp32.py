"""`fp32`: every value as it is."""

from __future__ import annotations

from typing import ClassVar

from trainingkit.codec.quantisers.base import QUANTISERS, Quantiser


@QUANTISERS.register("fp32")
class Fp32(Quantiser):
    """32 bits a value, no scales."""

    number_format: ClassVar[str] = "fp32"
    bits: ClassVar[int] = 32

    def scale_block(self) -> int:
        """Each value stands alone."""
        return 1

    def value_bytes(self, n: int) -> int:
        """4 bytes a value."""
        return 4 * n

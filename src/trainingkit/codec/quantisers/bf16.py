"""`bf16`: every value rounded to bfloat16, ties to even, at most the largest finite one."""

from __future__ import annotations

from typing import ClassVar

from trainingkit.codec.quantisers.base import QUANTISERS, Quantiser


@QUANTISERS.register("bf16")
class Bf16(Quantiser):
    """16 bits a value, no scales."""

    number_format: ClassVar[str] = "bf16"
    bits: ClassVar[int] = 16

    def scale_block(self) -> int:
        """Each value stands alone."""
        return 1

    def value_bytes(self, n: int) -> int:
        """2 bytes a value."""
        return 2 * n

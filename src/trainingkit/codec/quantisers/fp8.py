"""`fp8`: eight-bit floating point times the block's scale, in one of the two OCP formats."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from trainingkit.codec.quantisers.base import QUANTISERS
from trainingkit.codec.quantisers.blocked import Blocked


@QUANTISERS.register("fp8")
class Fp8(Blocked):
    """8 bits a value and 16 bits a block.

    Args:
        format: "e4m3" has 3 bits of fraction, "e5m2" has 2 and a wider range within a block.
    """

    number_format: ClassVar[str] = "fp8"
    bits: ClassVar[int] = 8

    format: Literal["e4m3", "e5m2"] = Field(default="e4m3")

    def kernel_format(self) -> str:
        """One for each format."""
        return f"{self.number_format}_{self.format}"

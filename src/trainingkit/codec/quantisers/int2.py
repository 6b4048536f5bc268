"""`int2`: levels -1, 0, 1 times the block's scale, which is near the one with the least squared error."""

from __future__ import annotations

from typing import ClassVar

from trainingkit.codec.quantisers.base import QUANTISERS
from trainingkit.codec.quantisers.blocked import Blocked


@QUANTISERS.register("int2")
class Int2(Blocked):
    """2 bits a value and 8 bits a block: a scale of 7 bits of exponent and 1 of fraction."""

    number_format: ClassVar[str] = "ternary"
    bits: ClassVar[int] = 2
    scale_bytes: ClassVar[int] = 1

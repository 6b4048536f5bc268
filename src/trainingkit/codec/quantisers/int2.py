"""`int2`: levels -1, 0, 1 times the block's scale; what is above 3/4 of the block's mean magnitude is sent."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from trainingkit.codec.quantisers.base import QUANTISERS
from trainingkit.codec.quantisers.blocked import Blocked


@QUANTISERS.register("int2")
class Int2(Blocked):
    """2 bits a value and 8 bits a block: a scale of 6 bits of exponent and 2 of fraction.

    Args:
        block: as for `Blocked`. Longer ones send fewer bytes and did not train worse.
    """

    number_format: ClassVar[str] = "ternary"
    bits: ClassVar[int] = 2
    scale_bytes: ClassVar[int] = 1
    exact: ClassVar[bool] = False

    block: int = Field(default=256, ge=8, le=65536, multiple_of=8)

"""`int8`: levels -127 .. 127 times the block's scale."""

from __future__ import annotations

from typing import ClassVar

from trainingkit.codec.quantisers.base import QUANTISERS
from trainingkit.codec.quantisers.linear import Linear


@QUANTISERS.register("int8")
class Int8(Linear):
    """8 bits a value and 16 bits a block."""

    bits: ClassVar[int] = 8

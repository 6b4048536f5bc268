"""`int4`: levels -7 .. 7 times the block's scale."""

from __future__ import annotations

from typing import ClassVar

from trainingkit.codec.quantisers.base import QUANTISERS
from trainingkit.codec.quantisers.linear import Linear


@QUANTISERS.register("int4")
class Int4(Linear):
    """4 bits a value and 16 bits a block."""

    bits: ClassVar[int] = 4

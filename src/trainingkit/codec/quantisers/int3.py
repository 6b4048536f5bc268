"""`int3`: levels -3 .. 3 times the block's scale."""

from __future__ import annotations

from typing import ClassVar

from trainingkit.codec.quantisers.base import QUANTISERS
from trainingkit.codec.quantisers.linear import Linear


@QUANTISERS.register("int3")
class Int3(Linear):
    """3 bits a value and 16 bits a block."""

    bits: ClassVar[int] = 3

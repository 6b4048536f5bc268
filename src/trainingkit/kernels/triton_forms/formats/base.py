"""What a number format in Triton is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainingkit.core.registry import Registry


@dataclass(frozen=True)
class Format:
    """Two device functions over a tile of blocks, one block a line.

    Args:
        encode: `(values, place, length, BITS) -> sent`. `values`: [blocks, lanes] fp32, zero in lanes without a value;
            `place`: [blocks, 1] pointers to the first byte of each block; `length`: [blocks, 1] values of each block,
            not positive where there is none. Writes the blocks; returns what a reader will see.
        decode: `(place, length, LANES, BITS) -> values`, [blocks, LANES] fp32.
    """

    encode: Any
    decode: Any


FORMATS: Registry[Format] = Registry("Triton number format", "trainingkit.kernels.triton_forms.formats")

"""What an index packing in Triton is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trainingkit.core.registry import Registry
from trainingkit.kernels.rowplan import RowPlan


@dataclass(frozen=True)
class Packing:
    """Two device functions, each for one row, and the number of flags they need in memory.

    Args:
        flags: plain `(plan) -> count`: bits of the part that is written as set bits, a multiple of 8, or 0.
        pack: `(index, slot, keep, place, flags, n_bytes, BITS, FLAGS)`. `index`: [lanes] int32, zero beyond `keep`;
            `place`: pointer to the row's first byte; `flags`: pointer to int32 memory for FLAGS numbers of the row;
            `n_bytes`: bytes of the packed indices.
        unpack: `(slot, keep, place, indices, n_bytes, BITS, FLAGS) -> found`. Writes the indices to the int32
            memory `indices`, which other threads see after a barrier; if not `keep` are found, the row is damaged.
    """

    flags: Callable[[RowPlan], int]
    pack: Any
    unpack: Any


PACKINGS: Registry[Packing] = Registry("Triton packing", "trainingkit.kernels.triton_forms.packings")

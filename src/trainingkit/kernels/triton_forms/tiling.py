"""How a plan's blocks lie in the tile of one program."""

from __future__ import annotations

from typing import NamedTuple

from trainingkit.kernels.rowplan import RowPlan
from trainingkit.kernels.triton_forms.options import LARGEST_TILE, lanes

STRETCH = 1024
"""Values in a line, where the format has no blocks."""
LEAST_LANES = 8


class Tiling(NamedTuple):
    """Lines of `block` values in `block_bytes` bytes; a tile has `BLOCKS` lines of `LANES` lanes."""

    block: int
    block_bytes: int
    BLOCKS: int
    LANES: int

    @property
    def size(self) -> int:
        """Lanes of the tile."""
        return self.BLOCKS * self.LANES

    def constants(self) -> dict[str, int]:
        """What a kernel is compiled for."""
        return {"BLOCKS": self.BLOCKS, "LANES": self.LANES}


def tiling(plan: RowPlan, count: int, wanted: int) -> Tiling:
    """Lines for `count` values of a row, in tiles of about `wanted` lanes."""
    block, block_bytes = plan.block, plan.block_bytes
    if block == 1:
        block, block_bytes = STRETCH, STRETCH * plan.bits // 8
    width = lanes(min(block, count), LEAST_LANES)
    needed = lanes(-(-count // block))
    return Tiling(block, block_bytes, min(needed, max(wanted // width, 1)), width)


def fits_blocks(plan: RowPlan) -> bool:
    """Whether one program can hold a block."""
    return tiling(plan, plan.keep, 1).size <= LARGEST_TILE

"""`all` in Triton: a program for a few blocks of one row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton.language as tl

from trainingkit.kernels.rowplan import RowPlan
from trainingkit.kernels.triton_forms.floats import INFINITE, magnitude_of
from trainingkit.kernels.triton_forms.formats import FORMATS
from trainingkit.kernels.triton_forms.options import launch, new_flag, piece
from trainingkit.kernels.triton_forms.selections.base import SELECTIONS, Selection
from trainingkit.kernels.triton_forms.tiling import Tiling, fits_blocks, tiling

if TYPE_CHECKING:
    from torch import Tensor

TILE = 2048


@piece
def tile_of_row(width, block, BLOCKS: tl.constexpr, LANES: tl.constexpr):
    """The program's row, first block, [BLOCKS, 1] lengths, [BLOCKS, LANES] offsets in the row and which are values."""
    first = tl.program_id(0).to(tl.int64) * BLOCKS
    number = first + tl.arange(0, BLOCKS)[:, None]
    lane = tl.arange(0, LANES)[None, :]
    length = tl.minimum(width - number * block, block).to(tl.int32)
    return tl.program_id(1).to(tl.int64), number, length, number * block + lane, lane < length


@piece
def encode_tile(
    x,
    residual,
    message,
    new_residual,
    flag,
    width,
    row_bytes,
    block,
    block_bytes,
    FORMAT: tl.constexpr,
    BITS: tl.constexpr,
    BLOCKS: tl.constexpr,
    LANES: tl.constexpr,
    HAS_OLD: tl.constexpr,
    HAS_NEW: tl.constexpr,
):
    """See `Kernel.encode`, for one tile."""
    row, number, length, offset, valid = tile_of_row(width, block, BLOCKS, LANES)
    at = row * width + offset
    y = tl.load(x + at, mask=valid, other=0.0)
    if HAS_OLD:
        y += tl.load(residual + at, mask=valid, other=0.0)
    tl.store(flag, 1, mask=tl.max(tl.max(magnitude_of(y), axis=1), axis=0) >= INFINITE)
    sent = FORMAT(y, message + row * row_bytes + number * block_bytes, length, BITS)
    if HAS_NEW:
        tl.store(new_residual + at, y - sent, mask=valid)


@piece
def decode_tile(
    message,
    out,
    weight,
    width,
    row_bytes,
    block,
    block_bytes,
    FORMAT: tl.constexpr,
    BITS: tl.constexpr,
    BLOCKS: tl.constexpr,
    LANES: tl.constexpr,
    ACCUMULATE: tl.constexpr,
):
    """See `Kernel.decode`, for one tile."""
    row, number, length, offset, valid = tile_of_row(width, block, BLOCKS, LANES)
    at = row * width + offset
    value = FORMAT(message + row * row_bytes + number * block_bytes, length, LANES, BITS) * tl.load(weight)
    if ACCUMULATE:
        value = tl.load(out + at, mask=valid, other=0.0) + value
    tl.store(out + at, value, mask=valid)


def _grid(plan: RowPlan, tiles: Tiling, n: int) -> tuple[int, int]:
    blocks = -(-plan.width // tiles.block)
    return -(-blocks // tiles.BLOCKS), n // plan.width


def encode(plan: RowPlan, x: Tensor, residual: Tensor | None, message: Tensor, new_residual: Tensor | None) -> Tensor:
    """See `Selection.encode`."""
    tiles, flag = tiling(plan, plan.width, TILE), new_flag(x)
    tensors = (x, x if residual is None else residual, message, x if new_residual is None else new_residual, flag)
    numbers = (plan.width, plan.row_bytes, tiles.block, tiles.block_bytes)
    has = {"HAS_OLD": residual is not None, "HAS_NEW": new_residual is not None}
    constants = {"FORMAT": FORMATS.get(plan.format).encode, "BITS": plan.bits} | tiles.constants()
    launch(encode_tile, _grid(plan, tiles, x.numel()), tiles.size, *tensors, *numbers, **constants, **has)
    return flag


def decode(plan: RowPlan, message: Tensor, out: Tensor, weight: float, accumulate: bool) -> Tensor:
    """See `Selection.decode`. Every message is sound."""
    tiles = tiling(plan, plan.width, TILE)
    numbers = (plan.width, plan.row_bytes, tiles.block, tiles.block_bytes)
    constants = {"FORMAT": FORMATS.get(plan.format).decode, "BITS": plan.bits} | tiles.constants()
    grid, factor = _grid(plan, tiles, out.numel()), out.new_full((1,), weight)
    launch(decode_tile, grid, tiles.size, message, out, factor, *numbers, **constants, ACCUMULATE=accumulate)
    return new_flag(out)


SELECTIONS.register("all")(Selection(fits_blocks, encode, decode))

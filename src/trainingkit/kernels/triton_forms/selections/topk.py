"""`topk` in Triton: a program for one row.

Kept values and their indices go through a little memory beside the message (8 bytes each), because a block of kept
values is cut from lanes anywhere in the row; a barrier separates its writers from its readers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import triton.language as tl

from trainingkit.kernels.rowplan import RowPlan
from trainingkit.kernels.triton_forms.floats import INFINITE, magnitude_of
from trainingkit.kernels.triton_forms.formats import FORMATS
from trainingkit.kernels.triton_forms.options import LARGEST_TILE, lanes, launch, new_flag, piece
from trainingkit.kernels.triton_forms.packings import PACKINGS
from trainingkit.kernels.triton_forms.selections.base import SELECTIONS, Selection
from trainingkit.kernels.triton_forms.threshold import choose
from trainingkit.kernels.triton_forms.tiling import Tiling, fits_blocks, tiling

if TYPE_CHECKING:
    from torch import Tensor


@piece
def blocks_of_slots(keep, block, BLOCKS: tl.constexpr, LANES: tl.constexpr):
    """[BLOCKS, 1] numbers and lengths of the blocks, [BLOCKS, LANES] slots and which of them are values."""
    number = tl.arange(0, BLOCKS)[:, None]
    lane = tl.arange(0, LANES)[None, :]
    length = tl.minimum(keep - number * block, block)
    return number, length, number * block + lane, lane < length


@piece
def encode_row(
    x,
    residual,
    message,
    new_residual,
    flag,
    values,
    indices,
    marks,
    width,
    keep,
    row_bytes,
    index_bytes,
    block,
    block_bytes,
    FORMAT: tl.constexpr,
    PACK: tl.constexpr,
    BITS: tl.constexpr,
    INDEX_BITS: tl.constexpr,
    BLOCKS: tl.constexpr,
    LANES: tl.constexpr,
    WIDTH: tl.constexpr,
    SLOTS: tl.constexpr,
    FLAGS: tl.constexpr,
    HAS_OLD: tl.constexpr,
    HAS_NEW: tl.constexpr,
):
    """See `Kernel.encode`, for one row."""
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, WIDTH)
    inside = lane < width
    y = tl.load(x + row * width + lane, mask=inside, other=0.0)
    if HAS_OLD:
        y += tl.load(residual + row * width + lane, mask=inside, other=0.0)
    magnitude = tl.minimum(magnitude_of(y), INFINITE)
    tl.store(flag, 1, mask=tl.max(magnitude, axis=0) >= INFINITE)
    chosen, slot = choose(tl.where(inside, magnitude, -1), keep)
    tl.store(values + row * keep + slot, y, mask=chosen)
    tl.store(indices + row * keep + slot, lane, mask=chosen)
    if HAS_NEW:
        tl.store(new_residual + row * width + lane, y, mask=inside & (chosen == 0))
    tl.debug_barrier()
    place = message + row * row_bytes
    number, length, position, valid = blocks_of_slots(keep, block, BLOCKS, LANES)
    kept = tl.load(values + row * keep + position, mask=valid, other=0.0)
    sent = FORMAT(kept, place + index_bytes + number * block_bytes, length, BITS)
    if HAS_NEW:
        home = tl.load(indices + row * keep + position, mask=valid, other=0)
        tl.store(new_residual + row * width + home, kept - sent, mask=valid)
    slots = tl.arange(0, SLOTS)
    index = tl.load(indices + row * keep + slots, mask=slots < keep, other=0)
    PACK(index, slots, keep, place, marks + row * FLAGS, index_bytes, INDEX_BITS, FLAGS)


@piece
def decode_row(
    message,
    out,
    flag,
    indices,
    weight,
    width,
    keep,
    row_bytes,
    index_bytes,
    block,
    block_bytes,
    FORMAT: tl.constexpr,
    UNPACK: tl.constexpr,
    BITS: tl.constexpr,
    INDEX_BITS: tl.constexpr,
    BLOCKS: tl.constexpr,
    LANES: tl.constexpr,
    WIDTH: tl.constexpr,
    SLOTS: tl.constexpr,
    FLAGS: tl.constexpr,
    ACCUMULATE: tl.constexpr,
):
    """See `Kernel.decode`, for one row."""
    row = tl.program_id(0).to(tl.int64)
    place, room = message + row * row_bytes, indices + row * keep
    found = UNPACK(tl.arange(0, SLOTS), keep, place, room, index_bytes, INDEX_BITS, FLAGS)
    if not ACCUMULATE:
        lane = tl.arange(0, WIDTH)
        tl.store(out + row * width + lane, 0.0, mask=lane < width)
    tl.debug_barrier()
    number, length, position, valid = blocks_of_slots(keep, block, BLOCKS, LANES)
    readable = valid & (position * 0 + found == keep)
    index = tl.load(room + position, mask=readable, other=0)
    before = tl.load(room + position - 1, mask=readable & (position > 0), other=-1)
    sound = readable & (index > before) & (index < width)
    n_sound = tl.sum(tl.sum(sound.to(tl.int32), axis=1), axis=0)
    tl.store(flag, 1, mask=n_sound < keep)
    value = FORMAT(place + index_bytes + number * block_bytes, length, LANES, BITS) * tl.load(weight)
    target = out + row * width + index
    if ACCUMULATE:
        value = tl.load(target, mask=sound, other=0.0) + value
    tl.store(target, value, mask=sound)


def _whole(plan: RowPlan) -> Tiling:
    return tiling(plan, plan.keep, LARGEST_TILE)


def fits(plan: RowPlan) -> bool:
    """Whether one program holds the row, its kept values and the flags of its packing."""
    tiles, flags = _whole(plan), PACKINGS.get(plan.packing).flags(plan)
    whole_row = tiles.BLOCKS * tiles.block >= plan.keep
    return fits_blocks(plan) and whole_row and max(lanes(plan.width), lanes(flags)) <= LARGEST_TILE


def _constants(plan: RowPlan, tiles: Tiling) -> dict[str, Any]:
    flags = PACKINGS.get(plan.packing).flags(plan)
    sizes = {"WIDTH": lanes(plan.width), "SLOTS": lanes(plan.keep, 8), "FLAGS": lanes(flags, 8)}
    return {"BITS": plan.bits, "INDEX_BITS": plan.index_bits} | sizes | tiles.constants()


def _numbers(plan: RowPlan, tiles: Tiling) -> tuple[int, ...]:
    return plan.width, plan.keep, plan.row_bytes, plan.index_bytes, tiles.block, tiles.block_bytes


def encode(plan: RowPlan, x: Tensor, residual: Tensor | None, message: Tensor, new_residual: Tensor | None) -> Tensor:
    """See `Selection.encode`."""
    import torch

    tiles, flag, rows = _whole(plan), new_flag(x), x.numel() // plan.width
    constants = _constants(plan, tiles)
    values = x.new_empty(rows * plan.keep)
    indices = x.new_empty(rows * plan.keep, dtype=torch.int32)
    marks = x.new_empty(rows * constants["FLAGS"], dtype=torch.int32)
    tensors = (x, x if residual is None else residual, message, x if new_residual is None else new_residual, flag)
    forms = {"FORMAT": FORMATS.get(plan.format).encode, "PACK": PACKINGS.get(plan.packing).pack}
    has = {"HAS_OLD": residual is not None, "HAS_NEW": new_residual is not None}
    arguments = (*tensors, values, indices, marks, *_numbers(plan, tiles))
    launch(encode_row, (rows,), constants["WIDTH"], *arguments, **forms, **constants, **has)
    return flag


def decode(plan: RowPlan, message: Tensor, out: Tensor, weight: float, accumulate: bool) -> Tensor:
    """See `Selection.decode`."""
    import torch

    tiles, flag, rows = _whole(plan), new_flag(out), out.numel() // plan.width
    constants = _constants(plan, tiles)
    indices = out.new_empty(rows * plan.keep, dtype=torch.int32)
    forms = {"FORMAT": FORMATS.get(plan.format).decode, "UNPACK": PACKINGS.get(plan.packing).unpack}
    arguments = (message, out, flag, indices, out.new_full((1,), weight), *_numbers(plan, tiles))
    launch(decode_row, (rows,), constants["WIDTH"], *arguments, **forms, **constants, ACCUMULATE=accumulate)
    return flag


SELECTIONS.register("topk")(Selection(fits, encode, decode))

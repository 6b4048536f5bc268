# ruff: noqa: PLR0917 - compiled functions take plain positional numbers
"""Compiled `all`: every value of a row, tile by tile, so that a tile is summed, coded and subtracted in the cache."""

from __future__ import annotations

import numpy as np

from trainingkit.kernels.compiled.formats.plain import decode_fp32, encode_fp32, scratch
from trainingkit.kernels.compiled.magnitude import add
from trainingkit.kernels.compiled.selections.base import SELECTIONS, Drivers
from trainingkit.kernels.rowplan import RowPlan

TILE = 4096
FORMAT_SCRATCH, FORMAT_ENCODE, FORMAT_DECODE = scratch, encode_fp32, decode_fp32


def encode_all(x, residual, message, new_residual, block, tile, tile_bytes):
    """Encode one row of any length."""
    memory, own = FORMAT_SCRATCH(tile, block), np.empty(tile, np.float32)
    finite, offset = True, 0
    for start in range(0, x.size, tile):
        stop = min(x.size, start + tile)
        y = new_residual[start:stop] if new_residual.size else own[: stop - start]
        add(x[start:stop], residual[start:stop], y)
        finite &= FORMAT_ENCODE(y, block, message, offset, memory)
        offset += tile_bytes
    return finite


def decode_all(message, out, weight, accumulate, block, tile, tile_bytes):
    """Decode one row: out = weight * values, or out += weight * values."""
    memory, own = FORMAT_SCRATCH(tile, block), np.empty(tile, np.float32)
    offset, direct = 0, weight == np.float32(1) and not accumulate
    for start in range(0, out.size, tile):
        place = out[start : start + tile]
        values = place if direct else own[: place.size]
        FORMAT_DECODE(message, offset, values, block, memory)
        if accumulate:
            for i in range(place.size):
                place[i] = place[i] + values[i] * weight
        elif not direct:
            for i in range(place.size):
                place[i] = values[i] * weight
        offset += tile_bytes
    return True


def _numbers(plan: RowPlan) -> tuple[int, ...]:
    tile = plan.block * max(1, TILE // plan.block)
    return plan.block, tile, tile // plan.block * plan.block_bytes


SELECTIONS.register("all")(Drivers(encode_all, decode_all, _numbers))

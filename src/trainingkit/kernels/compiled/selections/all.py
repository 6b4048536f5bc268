"""Compiled `all`: every value of a row, tile by tile, so that a tile is summed, coded and subtracted in the cache."""

from __future__ import annotations

from typing import Any

import numpy as np

from trainingkit.kernels.compiled.formats.plain import decode_fp32, encode_fp32
from trainingkit.kernels.compiled.selections.base import SELECTIONS, Drivers
from trainingkit.kernels.rowplan import RowPlan

TILE = 4096
FORMAT_ENCODE, FORMAT_DECODE = encode_fp32, decode_fp32


def encode_all(x, residual, message, new_residual, memory, own, block, tile, tile_bytes):
    """Encode one row of any length."""
    (tile_values,) = own
    finite, offset = True, 0
    for start in range(0, x.size, tile):
        stop = min(x.size, start + tile)
        y = new_residual[start:stop] if new_residual.size else tile_values[: stop - start]
        finite &= FORMAT_ENCODE(x[start:stop], residual[start:stop], y, block, message, offset, memory)
        offset += tile_bytes
    return finite


def decode_all(message, out, weight, accumulate, memory, own, block, tile, tile_bytes):
    """Decode one row: out = weight * values, or out += weight * values."""
    (tile_values,) = own
    offset, direct = 0, weight == np.float32(1) and not accumulate
    for start in range(0, out.size, tile):
        place = out[start : start + tile]
        values = place if direct else tile_values[: place.size]
        FORMAT_DECODE(message, offset, values, block, memory)
        if accumulate:
            for i in range(place.size):
                place[i] = place[i] + values[i] * weight
        elif not direct:
            for i in range(place.size):
                place[i] = values[i] * weight
        offset += tile_bytes
    return True


def _tile(plan: RowPlan) -> int:
    return plan.block * max(1, TILE // plan.block)


def _scratch(plan: RowPlan) -> tuple[Any, ...]:
    return (np.empty(_tile(plan), np.float32),)


def _numbers(plan: RowPlan) -> tuple[int, ...]:
    return plan.block, _tile(plan), _tile(plan) // plan.block * plan.block_bytes


SELECTIONS.register("all")(Drivers(encode_all, decode_all, _tile, _scratch, _numbers))

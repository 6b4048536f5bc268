# ruff: noqa: PLR0917 - compiled functions take plain positional numbers
"""Compiled `topk`: the largest magnitudes of each row (a chunk), equals by lowest index."""

from __future__ import annotations

import numpy as np

from trainingkit.kernels.compiled.formats.plain import decode_fp32, encode_fp32, scratch
from trainingkit.kernels.compiled.indices import pack, unpack
from trainingkit.kernels.compiled.magnitude import INFINITE, add, largest
from trainingkit.kernels.compiled.options import piece
from trainingkit.kernels.compiled.selections.base import SELECTIONS, Drivers
from trainingkit.kernels.compiled.threshold import ABOVE_ALL, LANES, candidates, narrow, resolve
from trainingkit.kernels.rowplan import RowPlan

FORMAT_SCRATCH, FORMAT_ENCODE, FORMAT_DECODE = scratch, encode_fp32, decode_fp32
FIRST_GUESS, FIRST_STEP = 0x3F800000, 1 << 19


@piece
def ranks(y, top, own):
    """The float bits to rank by: those of `y`, with every NaN made an infinity where there is one."""
    bits = y.view(np.int32)
    if top <= INFINITE:
        return bits
    for i in range(y.size):
        own[i] = bits[i] if largest(bits[i : i + 1]) < INFINITE else INFINITE
    return own[: y.size]


def encode_topk(x, residual, message, new_residual, width, keep, index_bits, index_bytes, row_bytes, block):
    """Encode rows of `width` values, `keep` of them each."""
    memory, own = FORMAT_SCRATCH(keep, block), np.empty(width, np.float32)
    padded = (width + LANES - 1) // LANES * LANES
    flags, masks = np.empty(padded, np.uint8), np.empty(padded // 8, np.uint8)
    indices, keys = np.empty(width + 2 * LANES, np.uint32), np.empty(width + LANES, np.int32)
    ranked, values = np.empty(width, np.int32), np.empty(keep, np.float32)
    finite, offset, guess = True, 0, FIRST_GUESS
    for start in range(0, x.size, width):
        y = new_residual[start : start + width] if new_residual.size else own
        top = add(x[start : start + width], residual[start : start + width], y)
        bits = ranks(y, top, ranked)
        low, count, high = narrow(bits, keep, keep // 2 + 8, 0, width, ABOVE_ALL, guess, FIRST_STEP)
        candidates(bits, np.int32(low), flags, masks, indices)
        guess = resolve(bits, keep, low, count, high, indices, keys)
        pack(indices, keep, index_bits, message, offset)
        for j in range(keep):
            values[j] = y[np.uint64(indices[j])]
        finite &= FORMAT_ENCODE(values, block, message, offset + index_bytes, memory)
        for j in range(keep):
            y[np.uint64(indices[j])] = values[j]
        finite &= top < INFINITE
        offset += row_bytes
    return finite


def decode_topk(message, out, weight, accumulate, width, keep, index_bits, index_bytes, row_bytes, block):
    """Decode rows; accumulating touches kept values only. Returns False where the indices are damaged."""
    memory, values, indices = FORMAT_SCRATCH(keep, block), np.empty(keep, np.float32), np.empty(keep, np.uint32)
    sound, offset = True, 0
    for start in range(0, out.size, width):
        place = out[start : start + width]
        if not accumulate:
            place[:] = 0
        if unpack(message, offset, keep, index_bits, width, indices):
            FORMAT_DECODE(message, offset + index_bytes, values, block, memory)
            for j in range(keep):
                i = np.uint64(indices[j])
                place[i] = place[i] + values[j] * weight if accumulate else values[j] * weight
        else:
            sound = False
        offset += row_bytes
    return sound


def _numbers(plan: RowPlan) -> tuple[int, ...]:
    return plan.width, plan.keep, plan.index_bits, plan.index_bytes, plan.row_bytes, plan.block


SELECTIONS.register("topk")(Drivers(encode_topk, decode_topk, _numbers))

"""Compiled `topk`: the largest magnitudes of each row (a chunk), equals by lowest index."""

from __future__ import annotations

from typing import Any

import numpy as np

from trainingkit.kernels.compiled.formats.plain import decode_fp32, encode_fp32
from trainingkit.kernels.compiled.magnitude import ABSOLUTE, INFINITE, ask_ahead
from trainingkit.kernels.compiled.options import piece
from trainingkit.kernels.compiled.packings.bits import pack, unpack
from trainingkit.kernels.compiled.selections.base import SELECTIONS, Drivers
from trainingkit.kernels.compiled.threshold import ABOVE_ALL, LANES, add_and_mark, gather_indices, mark, narrow, resolve
from trainingkit.kernels.rowplan import RowPlan

FORMAT_ENCODE, FORMAT_DECODE = encode_fp32, decode_fp32
PACK, UNPACK = pack, unpack
FIRST_GUESS, FIRST_STEP, MARGIN = 0x3F800000, 1 << 19, 1 << 18


@piece
def without_nans(bits, ranked):
    """ranked = bits, with every NaN made an infinity."""
    for i in range(bits.size):
        ranked[i] = bits[i] if (bits[i] & ABSOLUTE) <= INFINITE else INFINITE


def encode_topk(
    x, residual, message, new_residual, memory, own, width, keep, index_bits, index_bytes, row_bytes, block
):
    """Encode rows of `width` values, `keep` of them each.

    Between the phases of a row, an eighth of the next one is asked for: by experiment, more or all at once is slower.
    """
    values, indices, masks, kept_bits, ranked, row = own
    kept, ahead = kept_bits[:keep].view(np.float32), width // 8
    finite, offset, guess = True, 0, FIRST_GUESS
    for start in range(0, x.size, width):
        y = new_residual[start : start + width] if new_residual.size else row
        next_one, part, old = start + width, x[start : start + width], residual[start : start + width]
        top, count = add_and_mark(part, old, y, np.int32(guess), masks)
        bits = y.view(np.int32)
        if top > INFINITE:
            without_nans(bits, ranked[: y.size])
            bits = ranked[: y.size]
        low, count, high = narrow(bits, keep, keep // 2 + 8, 0, width, ABOVE_ALL, guess, count, FIRST_STEP)
        if low != guess:
            mark(bits, np.int32(low), masks)
        ask_ahead(x, residual, new_residual, next_one, next_one + ahead)
        gather_indices(masks, y.size, indices)
        ask_ahead(x, residual, new_residual, next_one + ahead, next_one + 2 * ahead)
        low = resolve(bits, keep, low, count, high, MARGIN, indices, kept_bits)
        guess = max(1, low - MARGIN)
        ask_ahead(x, residual, new_residual, next_one + 2 * ahead, next_one + 3 * ahead)
        PACK(indices, keep, index_bits, index_bytes, message, offset)
        ask_ahead(x, residual, new_residual, next_one + 3 * ahead, next_one + 4 * ahead)
        finite &= FORMAT_ENCODE(kept, residual[:0], values, block, message, offset + index_bytes, memory)
        ask_ahead(x, residual, new_residual, next_one + 4 * ahead, next_one + 5 * ahead)
        for j in range(keep):
            y[np.uint64(indices[j])] = values[j]
        finite &= top < INFINITE
        offset += row_bytes
    return finite


def decode_topk(message, out, weight, accumulate, memory, own, width, keep, index_bits, index_bytes, row_bytes, block):
    """Decode rows; accumulating touches kept values only. Returns False where the indices are damaged."""
    values, indices, _, spare, _, _ = own
    sound, offset = True, 0
    for start in range(0, out.size, width):
        place = out[start : start + width]
        if not accumulate:
            place[:] = 0
        if UNPACK(message, offset, keep, index_bits, index_bytes, place.size, indices, spare):
            FORMAT_DECODE(message, offset + index_bytes, values, block, memory)
            for j in range(keep):
                i = np.uint64(indices[j])
                place[i] = place[i] + values[j] * weight if accumulate else values[j] * weight
        else:
            sound = False
        offset += row_bytes
    return sound


def _capacity(plan: RowPlan) -> int:
    return plan.keep


def _scratch(plan: RowPlan) -> tuple[Any, ...]:
    indices, kept_bits = np.empty(plan.width + 2 * LANES, np.uint32), np.empty(plan.width + LANES, np.int32)
    ranked, row = np.empty(plan.width, np.int32), np.empty(plan.width, np.float32)
    masks = np.empty(plan.width // LANES + 1, np.uint64)
    return np.empty(plan.keep, np.float32), indices, masks, kept_bits, ranked, row


def _numbers(plan: RowPlan) -> tuple[int, ...]:
    return plan.width, plan.keep, plan.index_bits, plan.index_bytes, plan.row_bytes, plan.block


SELECTIONS.register("topk")(Drivers(encode_topk, decode_topk, _capacity, _scratch, _numbers))

"""Compiled `linear` format: see `trainingkit.kernels.reference.formats.linear` for the arithmetic and the proof.

A block is summed, measured, coded and written in one go, while it is in the first cache level. Runs of exactly 64
values have loops of fixed length, which LLVM unrolls into a few vector instructions.
"""

from __future__ import annotations

import numpy as np

from trainingkit.kernels.compiled.formats.base import FORMATS, Format
from trainingkit.kernels.compiled.intrinsics import copy_64, join_halves_64, move_16
from trainingkit.kernels.compiled.magnitude import INFINITE, RUN, add
from trainingkit.kernels.compiled.options import piece, specialise

HUGE = np.int32(0x7F000000)
SMALLEST_NORMAL = np.uint32(0x00800000)
ROUND = np.float32(12582912.0)
LEVELS = np.float32(7)
OFFSET = np.int32(8)


def scratch(capacity, block):
    """Codes, packed codes and scales of up to `capacity` values, and one run of values."""
    codes, packed = np.empty(capacity + block + RUN, np.uint8), np.empty(capacity + RUN, np.uint8)
    return codes, packed, np.empty(capacity // block + 1, np.float32), np.empty(RUN, np.float32)


def scale_of(top, scales):
    """The scale of a block with largest magnitude `top` (as an integer), into `scales[0]`. Returns its inverse."""
    scale_bits = scales.view(np.uint32)
    scale_bits[0] = np.uint32(top)
    scales[0] = scales[0] / LEVELS
    up = scale_bits[0] + (np.uint32(0xFFFF) if top < HUGE else np.uint32(0))
    if up < SMALLEST_NORMAL or top >= INFINITE:
        scale_bits[0] = np.uint32(0)
        return np.float32(0)
    scale_bits[0] = up & np.uint32(0xFFFF0000)
    return np.float32(1) / scales[0]


@piece
def nearest_level(value, inverse):
    """value * inverse, rounded to an integer, ties to even: adding 1.5 * 2**23 leaves no room for a fraction."""
    return (value * inverse + ROUND) - ROUND


def quantise(values, start, stop, scale, inverse, codes):
    """Codes of a block; the values become their errors. Only for a block that needs no care."""
    whole = start + (stop - start) // RUN * RUN
    for first in range(start, whole, RUN):
        code = codes[first - start : first - start + RUN]
        for j in range(RUN):
            i = np.uint64(first) + np.uint64(j)
            level = nearest_level(values[i], inverse)
            code[j] = np.uint8(np.int32(level) + OFFSET)
            values[i] = values[i] - level * scale
    for i in range(whole, stop):
        level = nearest_level(values[i], inverse)
        codes[i - start] = np.uint8(np.int32(level) + OFFSET)
        values[i] = values[i] - level * scale


def quantise_with_care(values, start, stop, scale, inverse, codes, finite):
    """As `quantise`, for any block: what is not finite is sent as zero and stays; levels are clamped."""
    for i in range(start, stop):
        level = np.float32(0)
        if finite:
            level = nearest_level(values[i], inverse)
            level = min(max(level, -LEVELS), LEVELS)
        codes[i - start] = np.uint8(np.int32(level) + OFFSET)
        if finite:
            values[i] = values[i] - level * scale


@piece
def copy_bytes(source, origin, target, at, count):
    """target[at : at + count] = source[origin : origin + count]."""
    whole = count // 16 * 16
    for i in range(0, whole, 16):
        move_16(target, at + i, source, origin + i)
    for i in range(whole, count):
        target[at + i] = source[origin + i]


@piece
def pack_4(codes, count, message, offset):
    """Two codes a byte, the first in the low half."""
    codes[count] = 0
    whole = count // RUN * RUN
    for first in range(0, whole, RUN):
        join_halves_64(codes, first, message, offset + first // 2)
    for i in range(whole, count, 2):
        message[offset + i // 2] = codes[i] | (codes[i + 1] << np.uint8(4))


@piece
def unpack_4(packed, codes):
    """The codes of `packed`, one a byte."""
    pairs = codes[: 2 * packed.size].view(np.uint16)
    for i in range(packed.size):
        both = np.uint16(packed[i])
        pairs[i] = (both | (both << np.uint16(4))) & np.uint16(0x0F0F)


@piece
def pack_8(codes, count, message, offset):
    """One code a byte already."""
    copy_bytes(codes, 0, message, offset, count)


@piece
def unpack_8(packed, codes):
    """One code a byte already."""
    copy_bytes(packed, 0, codes, 0, packed.size)


@piece
def bytes_4(count):
    """Bytes of `count` codes of 4 bits."""
    return (count + 1) // 2


@piece
def bytes_8(count):
    """Bytes of `count` codes of 8 bits."""
    return count


pack, unpack, code_bytes = pack_4, unpack_4, bytes_4


@piece
def fill_run(x, residual, start, stop, run):
    """run = x + residual from `start` to `stop`, then zeros. Returns the largest magnitude."""
    run[:] = 0
    for i in range(start, stop):
        run[i - start] = x[i] + residual[i] if residual.size else x[i]
    return copy_64(run, run, 0)


def encode(x, residual, errors, block, message, offset, memory):
    """See `Format.encode`. Each block is summed, measured, coded and written while it is in the first cache level.

    A block that is shorter than a run is filled up with zeros, which takes less time than loops of odd lengths.
    """
    codes, _, scales, run = memory
    scale_bits, finite = scales.view(np.uint32), True
    for start in range(0, errors.size, block):
        stop = min(errors.size, start + block)
        short = stop - start < RUN
        values, first, last = (run, 0, RUN) if short else (errors, start, stop)
        top = fill_run(x, residual, start, stop, run) if short else add(x, residual, errors, start, stop)
        inverse = scale_of(top, scales)
        if top >= HUGE:
            finite &= top < INFINITE
            quantise_with_care(values, first, last, scales[0], inverse, codes, top < INFINITE)
        else:
            quantise(values, first, last, scales[0], inverse, codes)
        if short:
            for i in range(start, stop):
                errors[i] = run[i - start]
        message[offset] = np.uint8(scale_bits[0] >> np.uint32(16))
        message[offset + 1] = np.uint8(scale_bits[0] >> np.uint32(24))
        pack(codes, stop - start, message, offset + 2)
        offset += 2 + code_bytes(stop - start)
    return finite


def decode(message, offset, out, block, memory):
    """Write the values of a message part into `out`."""
    codes, room, scales, _ = memory
    scale_bits = scales.view(np.uint32)
    filled = 0
    for b in range((out.size + block - 1) // block):
        low, high = np.uint32(message[offset]), np.uint32(message[offset + 1])
        scale_bits[b] = (low << np.uint32(16)) | (high << np.uint32(24))
        n_bytes = code_bytes(min(out.size - b * block, block))
        copy_bytes(message, offset + 2, room, filled, n_bytes)
        filled += n_bytes
        offset += 2 + n_bytes
    unpack(room[:filled], codes)
    for b in range((out.size + block - 1) // block):
        start, stop = b * block, min(out.size, (b + 1) * block)
        scale_up(codes[start:stop], scales[b], out[start:stop])


def scale_up(code, scale, out):
    """out = level * scale."""
    whole = out.size // RUN * RUN
    for first in range(0, whole, RUN):
        part, place = code[first : first + RUN], out[first : first + RUN]
        for j in range(RUN):
            place[j] = np.float32(np.int32(part[j]) - OFFSET) * scale
    for i in range(whole, out.size):
        out[i] = np.float32(np.int32(code[i]) - OFFSET) * scale


def _build(bits, **names):
    """The format for one width: the templates above with that width's constants."""
    levels = 2 ** (bits - 1) - 1
    names |= {"LEVELS": np.float32(levels), "OFFSET": np.int32(levels + 1)}
    parts = (scale_of, quantise, quantise_with_care, scale_up)
    names |= {part.__name__: piece(specialise(part, f"{bits}", **names)) for part in parts}
    whole = [piece(specialise(part, f"{bits}", **names)) for part in (encode, decode)]
    return Format(scratch, *whole)


FORMATS.register("linear4")(_build(4, pack=pack_4, unpack=unpack_4, code_bytes=bytes_4))
FORMATS.register("linear8")(_build(8, pack=pack_8, unpack=unpack_8, code_bytes=bytes_8))

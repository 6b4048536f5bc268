"""Compiled `linear` format: see `trainingkit.kernels.reference.formats.linear` for the arithmetic and the proof.

A tile goes through short passes (measure, quantise, pack, emit) that stay in the first cache level. Runs of exactly
64 values have loops of fixed length, which LLVM unrolls into a few vector instructions.
"""

from __future__ import annotations

import numpy as np

from trainingkit.kernels.compiled.formats.base import FORMATS, Format
from trainingkit.kernels.compiled.intrinsics import move_16
from trainingkit.kernels.compiled.magnitude import INFINITE, RUN, largest
from trainingkit.kernels.compiled.options import piece, specialise

HUGE = np.int32(0x7F000000)
SMALLEST_NORMAL = np.uint32(0x00800000)
ROUND = np.float32(12582912.0)
LEVELS = np.float32(7)
OFFSET = np.int32(8)


def scratch(capacity, block):
    """Codes, packed codes, scales and inverse scales of up to `capacity` values."""
    blocks = capacity // block + 1
    codes = np.empty(capacity + RUN, np.uint8)
    return codes, np.empty(capacity + RUN, np.uint8), np.empty(blocks, np.float32), np.empty(blocks, np.float32)


def measure(values, block, scales, inverses):
    """Scale and inverse of each block. Returns (any block needs care, any value is not finite)."""
    bits = values.view(np.int32)
    scale_bits = scales.view(np.uint32)
    care, finite = False, True
    for b in range((values.size + block - 1) // block):
        top = largest(bits, b * block, min(values.size, (b + 1) * block))
        scale_bits[b] = np.uint32(top)
        care |= top >= HUGE
        finite &= top < INFINITE
    for b in range((values.size + block - 1) // block):
        top = scale_bits[b]
        scales[b] = scales[b] / LEVELS
        up = scale_bits[b] + (np.uint32(0xFFFF) if top < np.uint32(HUGE) else np.uint32(0))
        usable = (up >= SMALLEST_NORMAL) & (top < np.uint32(INFINITE))
        scale_bits[b] = up & np.uint32(0xFFFF0000) if usable else np.uint32(0)
        inverses[b] = np.float32(1) / scales[b] if usable else np.float32(0)
    return care, finite


def quantise(values, block, scales, inverses, codes):
    """Codes of all values; the values become their errors. Only for blocks that need no care."""
    for b in range((values.size + block - 1) // block):
        start, stop = b * block, min(values.size, (b + 1) * block)
        scale, inverse = scales[b], inverses[b]
        whole = start + (stop - start) // RUN * RUN
        for first in range(start, whole, RUN):
            for j in range(RUN):
                i = np.uint64(first) + np.uint64(j)
                level = (values[i] * inverse + ROUND) - ROUND
                codes[i] = np.uint8(np.int32(level) + OFFSET)
                values[i] = values[i] - level * scale
        for i in range(whole, stop):
            level = (values[i] * inverse + ROUND) - ROUND
            codes[i] = np.uint8(np.int32(level) + OFFSET)
            values[i] = values[i] - level * scale


def quantise_with_care(values, block, scales, inverses, codes):
    """As `quantise`, for any block: what is not finite is sent as zero and stays; levels are clamped."""
    bits = values.view(np.int32)
    for b in range((values.size + block - 1) // block):
        start, stop = b * block, min(values.size, (b + 1) * block)
        if largest(bits, start, stop) >= INFINITE:
            codes[start:stop] = np.uint8(OFFSET)
            continue
        for i in range(start, stop):
            level = (values[i] * inverses[b] + ROUND) - ROUND
            level = min(max(level, -LEVELS), LEVELS)
            codes[i] = np.uint8(np.int32(level) + OFFSET)
            values[i] = values[i] - level * scales[b]


@piece
def copy_bytes(source, origin, target, at, count):
    """target[at : at + count] = source[origin : origin + count]."""
    whole = count // 16 * 16
    for i in range(0, whole, 16):
        move_16(target, at + i, source, origin + i)
    for i in range(whole, count):
        target[at + i] = source[origin + i]


@piece
def pack_4(codes, packed):
    """Two codes a byte, the first in the low half."""
    pairs = codes[: 2 * packed.size].view(np.uint16)
    for i in range(packed.size):
        packed[i] = np.uint8(pairs[i] | (pairs[i] >> np.uint16(4)))


@piece
def unpack_4(packed, codes):
    """The codes of `packed`, one a byte."""
    pairs = codes[: 2 * packed.size].view(np.uint16)
    for i in range(packed.size):
        both = np.uint16(packed[i])
        pairs[i] = (both | (both << np.uint16(4))) & np.uint16(0x0F0F)


@piece
def pack_8(codes, packed):
    """One code a byte already."""
    copy_bytes(codes, 0, packed, 0, packed.size)


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


def encode(values, block, message, offset, memory):
    """Write the message bytes of `values` from `offset` on; the values become their errors. Returns finite."""
    codes, room, scales, inverses = memory
    care, finite = measure(values, block, scales, inverses)
    if care:
        quantise_with_care(values, block, scales, inverses, codes)
    else:
        quantise(values, block, scales, inverses, codes)
    codes[values.size] = 0
    packed = room[: code_bytes(values.size)]
    pack(codes, packed)
    scale_bits = scales.view(np.uint32)
    full = code_bytes(block)
    for b in range((values.size + block - 1) // block):
        message[offset] = np.uint8(scale_bits[b] >> np.uint32(16))
        message[offset + 1] = np.uint8(scale_bits[b] >> np.uint32(24))
        count = min(full, packed.size - b * full)
        copy_bytes(packed, b * full, message, offset + 2, count)
        offset += 2 + count
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
    parts = (measure, quantise, quantise_with_care, scale_up)
    names |= {part.__name__: piece(specialise(part, f"{bits}", **names)) for part in parts}
    whole = [piece(specialise(part, f"{bits}", **names)) for part in (encode, decode)]
    return Format(scratch, *whole)


FORMATS.register("linear4")(_build(4, pack=pack_4, unpack=unpack_4, code_bytes=bytes_4))
FORMATS.register("linear8")(_build(8, pack=pack_8, unpack=unpack_8, code_bytes=bytes_8))

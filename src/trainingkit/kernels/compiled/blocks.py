"""Compiled blocks that share a scale: the loops of every format with scales, which brings its arithmetic.

A few thousand values are summed and measured, then coded and written, while they are in the first cache level. Runs of
exactly 64 values have loops of fixed length, which LLVM unrolls into a few vector instructions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from trainingkit.kernels.compiled.formats.base import Format
from trainingkit.kernels.compiled.intrinsics import copy_64, join_64, move_16, spread_64
from trainingkit.kernels.compiled.magnitude import INFINITE, RUN, add
from trainingkit.kernels.compiled.options import inlined, piece, specialise
from trainingkit.kernels.compiled.scales import BF16_BYTES, bf16_scale, read_bf16, write_bf16

Piece = Callable[..., Any]


@inlined
def scale_of(values, count, top):
    """Replaced by `build`: the scale of the block, 0 if it is to stay in the residual; and the gauge for `to_code`.

    Args:
        values: the block, all finite; filled up with zeros to a run where it is shorter.
        count: values in the block.
        top: the largest magnitude, as an integer.
    """
    return bf16_scale(top, np.float32(1)), np.float32(0)


@inlined
def to_code(value, gauge):
    """Replaced by `build`: the code of a value, and the number that the code means."""
    return np.uint8(0), np.float32(0)


@inlined
def from_code(code):
    """Replaced by `build`: the number that a code means."""
    return np.float32(0)


BITS, ZERO, SCALE_BYTES = 4, np.uint8(0), BF16_BYTES
write_scale, read_scale = write_bf16, read_bf16
join, spread = join_64(BITS), spread_64(BITS)


def scratch(capacity, block):
    """Codes of one block, a run of packed codes, and a run of values."""
    return np.empty(block + RUN, np.uint8), np.zeros(8 * RUN, np.uint8), np.empty(RUN, np.float32)


@inlined
def fill_run(x, residual, start, stop, run):
    """run = x + residual from `start` to `stop`, then zeros. Returns the largest magnitude."""
    run[:] = 0
    for i in range(start, stop):
        run[i - start] = x[i] + residual[i] if residual.size else x[i]
    return copy_64(run, run, 0)


def quantise(values, scale, gauge, codes):
    """Codes of a block of finite values, which become their errors."""
    whole = values.size // RUN * RUN
    for first in range(0, whole, RUN):
        code, part = codes[first : first + RUN], values[first : first + RUN]
        for j in range(RUN):
            code[j], number = to_code(part[j], gauge)
            part[j] = part[j] - number * scale
    for i in range(whole, values.size):
        codes[i], number = to_code(values[i], gauge)
        values[i] = values[i] - number * scale


def pack(codes, count, packed, message, offset):
    """Write `count` codes, lowest bits first; zero bits fill the last byte."""
    whole = count // RUN * RUN
    for first in range(0, whole, RUN):
        join(codes, first, message, offset + first * BITS // 8)
    if whole < count:
        codes[count : whole + RUN] = 0
        join(codes, whole, packed, 0)
        copy_bytes(packed, 0, message, offset + whole * BITS // 8, ((count - whole) * BITS + 7) // 8)


def unpack(message, offset, count, packed, codes):
    """The inverse of `pack`."""
    whole = count // RUN * RUN
    for first in range(0, whole, RUN):
        spread(message, offset + first * BITS // 8, codes, first)
    if whole < count:
        copy_bytes(message, offset + whole * BITS // 8, packed, 0, ((count - whole) * BITS + 7) // 8)
        spread(packed, 0, codes, whole)


def scale_up(codes, scale, out):
    """out = number * scale."""
    whole = out.size // RUN * RUN
    for first in range(0, whole, RUN):
        part, place = codes[first : first + RUN], out[first : first + RUN]
        for j in range(RUN):
            place[j] = from_code(part[j]) * scale
    for i in range(whole, out.size):
        out[i] = from_code(codes[i]) * scale


@inlined
def copy_bytes(source, origin, target, at, count):
    """target[at : at + count] = source[origin : origin + count]."""
    whole = count // 16 * 16
    for i in range(0, whole, 16):
        move_16(target, at + i, source, origin + i)
    for i in range(whole, count):
        target[at + i] = source[origin + i]


def measure(x, residual, errors, start, stop):
    """Sum a block. Returns whether it is finite, its scale (0 where it is not) and its gauge."""
    top = add(x, residual, errors, start, stop)
    if top >= INFINITE:
        return False, np.float32(0), np.float32(0)
    scale, gauge = scale_of(errors[start:stop], stop - start, top)
    return True, scale, gauge


def put_block(values, count, finite, scale, gauge, codes, packed, message, offset):
    """Write the scale and the codes of a block; its values become their errors, or stay where not all are finite."""
    if finite:
        quantise(values, scale, gauge, codes)
    else:
        codes[:count] = ZERO
    write_scale(scale, message, offset)
    pack(codes, count, packed, message, offset + SCALE_BYTES)


def encode_long(x, residual, errors, block, message, offset, memory):
    """As `encode`, for blocks of at least a run each.

    Each block is measured before the one ahead of it is coded, so that neither waits for the other or for memory.
    """
    codes, packed, _ = memory
    stop = min(errors.size, block)
    finite, scale, gauge = measure(x, residual, errors, 0, stop)
    all_finite = finite
    for start in range(0, errors.size, block):
        after, ahead = min(errors.size, stop + block), (True, np.float32(0), np.float32(0))
        if after > stop:
            ahead = measure(x, residual, errors, stop, after)
        put_block(errors[start:stop], stop - start, finite, scale, gauge, codes, packed, message, offset)
        offset += SCALE_BYTES + ((stop - start) * BITS + 7) // 8
        stop = after
        finite, scale, gauge = ahead
        all_finite &= finite
    return all_finite


def encode_short(x, residual, errors, message, offset, memory):
    """As `encode`, for one block of less than a run.

    The block is filled up with zeros, which takes less time than loops of odd lengths.
    """
    codes, packed, run = memory
    count = errors.size
    top = fill_run(x, residual, 0, count, run)
    scale, gauge = scale_of(run, count, top) if top < INFINITE else (np.float32(0), np.float32(0))
    put_block(run, count, top < INFINITE, scale, gauge, codes, packed, message, offset)
    for i in range(count):
        errors[i] = run[i]
    return top < INFINITE


def encode(x, residual, errors, block, message, offset, memory):
    """See `Format.encode`."""
    n, rest, block_bytes = errors.size, errors.size % block, SCALE_BYTES + block * BITS // 8
    long = (n if rest == 0 or rest >= RUN else n - rest) if block >= RUN else 0
    finite = True
    if long:
        finite = encode_long(x[:long], residual[:long], errors[:long], block, message, offset, memory)
    offset += long // block * block_bytes
    for start in range(long, n, block):
        stop = min(n, start + block)
        finite &= encode_short(x[start:stop], residual[start:stop], errors[start:stop], message, offset, memory)
        offset += block_bytes
    return finite


def decode(message, offset, out, block, memory):
    """See `Format.decode`."""
    codes, packed, _ = memory
    for start in range(0, out.size, block):
        stop = min(out.size, start + block)
        unpack(message, offset + SCALE_BYTES, stop - start, packed, codes)
        scale_up(codes, read_scale(message, offset), out[start:stop])
        offset += SCALE_BYTES + ((stop - start) * BITS + 7) // 8


def build(tag: str, bits: int, scale_of: Piece, to_code: Piece, from_code: Piece, **names: Any) -> Format:
    """The format with this arithmetic: the templates above with its functions and constants.

    Args:
        tag: the format's name.
        bits: bits of a code, 1 to 8.
        scale_of, to_code, from_code: compiled, as above.
        names: `ZERO`, the code of zero, and where the scale is no bf16: `SCALE_BYTES`, `write_scale`, `read_scale`.
    """
    names |= {"scale_of": scale_of, "to_code": to_code, "from_code": from_code}
    names |= {"BITS": bits, "join": join_64(bits), "spread": spread_64(bits)}
    for part in (quantise, pack, unpack, scale_up, measure, put_block):
        names[part.__name__] = inlined(specialise(part, tag, **names))
    for part in (encode_long, encode_short):
        names[part.__name__] = piece(specialise(part, tag, **names))
    whole = [piece(specialise(part, tag, **names)) for part in (encode, decode)]
    return Format(scratch, *whole)

"""Compiled `fp32` and `bf16` formats: see `trainingkit.kernels.reference.formats.plain`."""

from __future__ import annotations

import numpy as np

from trainingkit.kernels.compiled.formats.base import FORMATS, Format
from trainingkit.kernels.compiled.magnitude import ABSOLUTE, INFINITE, add
from trainingkit.kernels.compiled.options import piece

LARGEST_BF16 = np.uint32(0x7F7F)


def scratch(capacity, block):
    """Room for one value, as a number and as its bits."""
    return (np.empty(1, np.float32),)


@piece
def encode_fp32(x, residual, values, block, message, offset, memory):
    """Four bytes a value, little-endian."""
    top = add(x, residual, values, 0, values.size)
    bits = values.view(np.uint32)
    for i in range(values.size):
        word = bits[i] if (np.int32(bits[i]) & ABSOLUTE) < INFINITE else np.uint32(0)
        for part in range(4):
            message[offset + 4 * i + part] = np.uint8(word >> np.uint32(8 * part))
        if word == bits[i]:
            values[i] = np.float32(0)
    return top < INFINITE


@piece
def decode_fp32(message, offset, out, block, memory):
    """The inverse of `encode_fp32`."""
    bits = out.view(np.uint32)
    for i in range(out.size):
        word = np.uint32(0)
        for part in range(4):
            word |= np.uint32(message[offset + 4 * i + part]) << np.uint32(8 * part)
        bits[i] = word


@piece
def encode_bf16(x, residual, values, block, message, offset, memory):
    """The upper half of each value, rounded to the nearest even, at most the largest finite bf16."""
    bits = values.view(np.uint32)
    sent_bits = memory[0].view(np.uint32)
    finite = add(x, residual, values, 0, values.size) < INFINITE
    for i in range(values.size):
        word = bits[i]
        half = (word + np.uint32(0x7FFF) + ((word >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
        sign = (word >> np.uint32(16)) & np.uint32(0x8000)
        magnitude = half & np.uint32(0x7FFF)
        half = sign | (LARGEST_BF16 if magnitude > LARGEST_BF16 else magnitude)
        if (np.int32(word) & ABSOLUTE) >= INFINITE:
            half = np.uint32(0)
        message[offset + 2 * i] = np.uint8(half)
        message[offset + 2 * i + 1] = np.uint8(half >> np.uint32(8))
        sent_bits[0] = half << np.uint32(16)
        values[i] = values[i] - memory[0][0]
    return finite


@piece
def decode_bf16(message, offset, out, block, memory):
    """The inverse of `encode_bf16`."""
    bits = out.view(np.uint32)
    for i in range(out.size):
        low, high = np.uint32(message[offset + 2 * i]), np.uint32(message[offset + 2 * i + 1])
        bits[i] = (low << np.uint32(16)) | (high << np.uint32(24))


FORMATS.register("fp32")(Format(scratch, encode_fp32, decode_fp32))
FORMATS.register("bf16")(Format(scratch, encode_bf16, decode_bf16))

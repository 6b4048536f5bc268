"""Compiled `linear` format, for every width: see `trainingkit.kernels.reference.formats.linear` for the arithmetic."""

from __future__ import annotations

import numpy as np

from trainingkit.kernels.compiled.blocks import build
from trainingkit.kernels.compiled.formats.base import FORMATS
from trainingkit.kernels.compiled.options import inlined, specialise
from trainingkit.kernels.compiled.rounding import nearest
from trainingkit.kernels.compiled.scales import bf16_scale, inverse_of

WIDTHS = range(2, 9)
LEVELS, OFFSET = np.float32(7), np.int32(8)


def scale_of(values, count, top):
    """The scale that makes the largest magnitude the last level, and its inverse."""
    scale = bf16_scale(top, LEVELS)
    return scale, inverse_of(scale)


def to_code(value, inverse):
    """A level, from 1 up."""
    level = min(max(nearest(value * inverse), -LEVELS), LEVELS)
    return np.uint8(np.int32(level) + OFFSET), level


def from_code(code):
    """The level."""
    return np.float32(np.int32(code) - OFFSET)


def _register(bits: int) -> None:
    levels = 2 ** (bits - 1) - 1
    names = {"LEVELS": np.float32(levels), "OFFSET": np.int32(levels + 1)}
    parts = [inlined(specialise(part, f"{bits}", **names)) for part in (scale_of, to_code, from_code)]
    FORMATS.register(f"linear{bits}")(build(f"linear{bits}", bits, *parts, ZERO=np.uint8(levels + 1)))


for _bits in WIDTHS:
    _register(_bits)

"""Compiled `fp8_e4m3` and `fp8_e5m2`: see `trainingkit.kernels.reference.formats.fp8` for arithmetic and proof."""

from __future__ import annotations

import numpy as np

from trainingkit.kernels.compiled.blocks import build
from trainingkit.kernels.compiled.formats.base import FORMATS
from trainingkit.kernels.compiled.intrinsics import bits_of, float_of
from trainingkit.kernels.compiled.magnitude import ABSOLUTE
from trainingkit.kernels.compiled.options import inlined, specialise
from trainingkit.kernels.compiled.scales import bf16_scale, inverse_of

LARGEST, NORMAL, TO_UNITS, FROM_BITS = np.float32(448), np.float32(2**-6), np.float32(2**9), np.float32(2**120)
ROUND = np.float32(1.5 * 2**14)
"""1.5 * 2**23 of the least numbers of the format."""
SHIFT, BELOW_HALF, REBIAS = np.int32(20), np.int32(0x7FFFF), np.int32(120 << 3)
ONE, REST, SIGN, SIGN_PLACE = np.int32(1), np.int32(0x7F), np.int32(-(2**31)), np.int32(24)


def scale_of(values, count, top):
    """The scale that makes the largest magnitude the largest number, and its inverse."""
    scale = bf16_scale(top, LARGEST)
    return scale, inverse_of(scale)


def to_code(value, inverse):
    """Below the normal numbers a multiple of the least one; else a float with fewer bits of fraction."""
    scaled = bits_of(value * inverse)
    magnitude = min(float_of(np.int32(scaled & ABSOLUTE)), LARGEST)
    bits = bits_of(magnitude)
    odd = np.int32(np.int32(bits >> SHIFT) & ONE)
    short = np.int32(np.int32(np.int32(bits + BELOW_HALF) + odd) >> SHIFT)
    small = (magnitude + ROUND) - ROUND
    tiny = magnitude < NORMAL
    code = np.int32(small * TO_UNITS) if tiny else np.int32(short - REBIAS)
    number = bits_of(small) if tiny else np.int32(short << SHIFT)
    sign = np.int32(scaled & SIGN) if code else np.int32(0)
    return np.uint8(code | np.int32(np.uint32(sign) >> np.uint32(24))), float_of(np.int32(number | sign))


def from_code(code):
    """The bits at their place in a float, whose exponent is then put right."""
    bits, sign = np.int32(np.int32(np.int32(code) & REST) << SHIFT), np.int32(np.int32(code) << SIGN_PLACE) & SIGN
    return float_of(np.int32(bits | sign)) * FROM_BITS


def _register(name: str, fraction: int, bias: int, largest: float) -> None:
    least = 2.0 ** (1 - bias - fraction)
    shift = 23 - fraction
    names = {"LARGEST": largest, "NORMAL": 2.0 ** (1 - bias), "TO_UNITS": 1 / least, "FROM_BITS": 2.0 ** (127 - bias)}
    names |= {"ROUND": 1.5 * 2**23 * least}
    numbers = {"SHIFT": shift, "BELOW_HALF": (1 << shift - 1) - 1, "REBIAS": 127 - bias << fraction}
    known = {key: np.float32(value) for key, value in names.items()}
    known |= {key: np.int32(value) for key, value in numbers.items()}
    parts = [inlined(specialise(part, name, **known)) for part in (scale_of, to_code, from_code)]
    FORMATS.register(name)(build(name, 8, *parts, ZERO=np.uint8(0)))


_register("fp8_e4m3", fraction=3, bias=7, largest=448.0)
_register("fp8_e5m2", fraction=2, bias=15, largest=57344.0)

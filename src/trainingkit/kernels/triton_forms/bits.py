"""Numbers of 1 to 16 bits, lowest bit first, written to bytes and read from them."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from trainingkit.kernels.triton_forms.options import piece


@triton.constexpr_function
def group_of(bits: Any) -> Any:
    """How many numbers of `bits` bits fill whole bytes: 2 of 4 bits, 8 of 3 bits."""
    common = bits & -bits
    return 1 if common >= 8 else 8 // common


@piece
def write_bits(numbers, place, n_bytes, BITS: tl.constexpr):
    """Write each line of numbers as `n_bytes` bytes.

    Args:
        numbers: [lines, lanes] int32, below 2**BITS, zero in lanes without a number; whole groups of lanes.
        place: [lines, 1] pointers to the first byte of each line.
        n_bytes: [lines, 1] bytes of each line; not positive where there is none.
    """
    GROUP: tl.constexpr = group_of(BITS)
    GROUP_BYTES: tl.constexpr = GROUP * BITS // 8
    GROUPS: tl.constexpr = numbers.shape[1] // GROUP
    parts = tl.reshape(numbers, (numbers.shape[0], GROUPS, GROUP))
    first_bit = (tl.arange(0, GROUP) * BITS)[None, None, :]
    first_byte = (tl.arange(0, GROUPS) * GROUP_BYTES)[None, :]
    for byte in tl.static_range(GROUP_BYTES):  # pyright: ignore[reportGeneralTypeIssues]
        left = tl.minimum(tl.maximum(first_bit - 8 * byte, 0), 8)
        right = tl.minimum(tl.maximum(8 * byte - first_bit, 0), 16)
        whole = tl.sum(((parts << left) >> right) & 0xFF, axis=2)
        at = first_byte + byte
        tl.store(place + at, whole.to(tl.uint8), mask=at < n_bytes)


@piece
def read_bits(place, number, valid, BITS: tl.constexpr):
    """Read the numbers called `number` (0, 1, ...) of those that start at `place`, as int32; 0 where not `valid`."""
    first = number * BITS
    byte, shift = first >> 3, first & 7
    word = tl.load(place + byte, mask=valid, other=0).to(tl.int32)
    if group_of(BITS) * BITS > 8:
        second = valid & (shift + BITS > 8)
        word |= tl.load(place + byte + 1, mask=second, other=0).to(tl.int32) << 8
    if BITS > 9:
        third = valid & (shift + BITS > 16)
        word |= tl.load(place + byte + 2, mask=third, other=0).to(tl.int32) << 16
    return (word >> shift) & (2**BITS - 1)

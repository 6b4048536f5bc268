"""The exact k-th largest magnitude of a chunk, found by counting.

Counting how many magnitudes reach a threshold is one vectorised pass. Guesses narrow a bracket
`count(low) >= keep > count(high)`; on the whole chunk until few candidates are left, then on those until exact.
A good first guess (the chunk before) saves passes and never changes the result.
"""

from __future__ import annotations

import numpy as np

from trainingkit.kernels.compiled.intrinsics import add_64, reaching_mask, set_bits, trailing_zeros
from trainingkit.kernels.compiled.magnitude import ABSOLUTE, add, count_reaching
from trainingkit.kernels.compiled.options import piece

ABOVE_ALL = 0x7F800001
"""One above infinity: nothing in a chunk whose NaNs were made infinities reaches it."""
LANES = 64
AT_ONCE = 6
ONE = np.uint64(1)


@piece
def narrow(bits, keep, slack, low, count_low, high, guess, count, step):
    """Narrow the bracket until `keep <= count(low) <= keep + slack`, or until `high == low + 1`.

    Args:
        guess, count: the first threshold to try, and how many reach it.
        step: the first stride in search of the other side of the bracket.

    Returns:
        low, count(low), high.
    """
    count_high, tries = -1, 0
    while True:
        if count >= keep:
            low, count_low = guess, count
        else:
            high, count_high = guess, count
        if high - low <= 1 or count_low <= keep + slack:
            return low, count_low, high
        tries += 1
        if count_high < 0:
            guess, step = low + step, 2 * step
        elif low == 0:
            guess, step = high - step, 2 * step
        elif tries % 4:
            guess = low + (high - low) * (count_low - keep) // (count_low - count_high)
        else:
            guess = low + (high - low) // 2
        guess = min(max(guess, low + 1), high - 1)
        count = count_reaching(bits, np.int32(guess))


@piece
def add_and_mark(x, residual, y, threshold, masks):
    """y = x + residual, and a bit for each magnitude that reaches `threshold`, while the processor waits for memory.

    Returns:
        The largest magnitude, and the number of bits that are set.
    """
    bits = y.view(np.int32)
    whole = y.size // LANES * LANES if residual.size else 0
    top, count = np.int32(0), 0
    for base in range(0, whole, LANES):
        top = max(top, add_64(x, residual, y, base))
        mask = reaching_mask(bits, base, threshold)
        masks[base // LANES] = mask
        count += np.int64(set_bits(mask))
    if whole < y.size:
        top = max(top, add(x, residual, y, whole, y.size))
        mark(bits[whole:], threshold, masks[whole // LANES :])
        count += count_reaching(bits[whole:], threshold)
    return top, count


@piece
def mark(bits, threshold, masks):
    """A bit for each magnitude that reaches `threshold`."""
    for base in range(0, bits.size, LANES):
        masks[base // LANES] = _mask(bits, base, threshold)


@piece
def gather_indices(masks, size, indices):
    """The set bits of the masks as ascending indices.

    Six at a time without asking, so that the usual mask costs no branch that is hard to foresee.
    """
    found = np.uint64(0)
    for base in range(0, size, LANES):
        mask = masks[base // LANES]
        end = found + set_bits(mask)
        while True:
            for j in range(AT_ONCE):
                indices[found + np.uint64(j)] = np.uint32(np.uint64(base) + trailing_zeros(mask))
                mask &= mask - ONE
            found += np.uint64(AT_ONCE)
            if found >= end:
                break
        found = end


@piece
def _mask(bits, base, threshold):
    if base + LANES <= bits.size:
        return reaching_mask(bits, base, threshold)
    mask = np.uint64(0)
    for i in range(base, bits.size):
        mask |= np.uint64((bits[i] & ABSOLUTE) >= threshold) << np.uint64(i - base)
    return mask


@piece
def resolve(bits, keep, low, count_low, high, margin, indices, kept_bits):
    """Reduce `count_low` candidates in `indices` to the `keep` largest; among equals the first stay.

    Args:
        margin: how far above `low` the k-th largest is expected.
        kept_bits: overwritten with the float bits of those that stay.

    Returns:
        The k-th largest magnitude, or a lower threshold that exactly `keep` reach.
    """
    found = count_low
    padded = (found + LANES - 1) // LANES * LANES
    for j in range(found):
        kept_bits[j] = bits[np.uint64(indices[j])]
    for j in range(found, padded):
        kept_bits[j] = 0
    if found > keep and high - low > 1:
        guess = min(low + margin, high - 1)
        count = count_reaching(kept_bits[:padded], np.int32(guess))
        low, count_low, _ = narrow(kept_bits[:padded], keep, 0, low, count_low, high, guess, count, 1 << 16)
    if count_low == keep:
        _keep_reaching(low, found, indices, kept_bits)
    else:
        _keep_first_equals(low, count_low - keep, found, indices, kept_bits)
    return low


@piece
def _keep_reaching(low, found, indices, kept_bits):
    kept = np.uint64(0)
    for j in range(found):
        value = kept_bits[j]
        indices[kept], kept_bits[kept] = indices[j], value
        kept += np.uint64((value & ABSOLUTE) >= low)


@piece
def _keep_first_equals(low, spare, found, indices, kept_bits):
    """As `_keep_reaching`, without the last `spare` of those equal to `low`."""
    equals = 0
    for j in range(found):
        equals += np.int64((kept_bits[j] & ABSOLUTE) == low)
    room, kept = equals - spare, np.uint64(0)
    for j in range(found):
        value = kept_bits[j]
        equal = np.int64((value & ABSOLUTE) == low)
        indices[kept], kept_bits[kept] = indices[j], value
        kept += np.uint64(np.int64((value & ABSOLUTE) > low) | (equal & np.int64(room > 0)))
        room -= equal

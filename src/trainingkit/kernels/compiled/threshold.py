# ruff: noqa: PLR0917 - compiled functions take plain positional numbers
"""The exact k-th largest magnitude of a chunk, found by counting.

Counting how many magnitudes reach a threshold is one vectorised pass. Guesses narrow a bracket
`count(low) >= keep > count(high)`; on the whole chunk until few candidates are left, then on those until exact.
A good first guess (the chunk before) saves passes and never changes the result.
"""

from __future__ import annotations

import numpy as np

from trainingkit.kernels.compiled.intrinsics import set_bits, trailing_zeros
from trainingkit.kernels.compiled.magnitude import ABSOLUTE, count_reaching
from trainingkit.kernels.compiled.options import piece

ABOVE_ALL = 0x7F800001
"""One above infinity: nothing in a chunk whose NaNs were made infinities reaches it."""
LANES = 64
SPREAD = np.uint64(0x0102040810204080)
TO_TOP = np.uint64(56)
ONE = np.uint64(1)


@piece
def narrow(bits, keep, slack, low, count_low, high, guess, step):
    """Narrow the bracket until `keep <= count(low) <= keep + slack`, or until `high == low + 1`.

    Returns:
        low, count(low), high.
    """
    count_high, tries = -1, 0
    while high - low > 1 and count_low > keep + slack:
        guess = min(max(guess, low + 1), high - 1)
        count = count_reaching(bits, np.int32(guess))
        if count >= keep:
            low, count_low = guess, count
        else:
            high, count_high = guess, count
        tries += 1
        if count_high < 0:
            guess, step = low + step, 2 * step
        elif low == 0:
            guess, step = high - step, 2 * step
        elif tries % 4:
            guess = low + (high - low) * (count_low - keep) // (count_low - count_high)
        else:
            guess = low + (high - low) // 2
    return low, count_low, high


@piece
def candidates(bits, threshold, flags, masks, indices):
    """Ascending indices of the magnitudes that reach `threshold`; returns their number.

    Flags become 64-bit masks, eight flags at a time (one multiplication lines up eight bytes' lowest bits); four
    indices are written per mask without asking, so that the usual mask costs no branch that is hard to foresee.
    """
    n_masks = (bits.size + LANES - 1) // LANES
    for i in range(bits.size):
        flags[i] = np.uint8((bits[i] & ABSOLUTE) >= threshold)
    for i in range(bits.size, n_masks * LANES):
        flags[i] = 0
    eights = flags.view(np.uint64)
    for i in range(n_masks * 8):
        masks[i] = np.uint8((eights[i] * SPREAD) >> TO_TOP)
    words = masks.view(np.uint64)
    found = 0
    for w in range(n_masks):
        mask, count = words[w], np.int64(set_bits(words[w]))
        place = indices[found : found + LANES]
        done, base = 0, np.uint64(w * LANES)
        while True:
            for j in range(4):
                place[done + j] = np.uint32(base + trailing_zeros(mask))
                mask &= mask - ONE
            done += 4
            if done >= count:
                break
        found += count
    return found


@piece
def resolve(bits, keep, low, count_low, high, indices, keys):
    """Reduce `count_low` candidates in `indices` to the `keep` largest; among equals the first stay.

    Returns:
        The k-th largest magnitude, or a lower threshold that exactly `keep` reach.
    """
    padded = (count_low + LANES - 1) // LANES * LANES
    for j in range(count_low):
        keys[j] = bits[np.uint64(indices[j])] & ABSOLUTE
    for j in range(count_low, padded):
        keys[j] = 0
    low, exact, _ = narrow(keys[:padded], keep, 0, low, count_low, high, low + (1 << 15), 1 << 16)
    spare = exact - keep
    equals = 0
    if spare > 0:
        for j in range(count_low):
            equals += np.int64(keys[j] == low)
    room, kept = equals - spare, np.uint64(0)
    for j in range(count_low):
        equal = np.int64(keys[j] == low) if spare > 0 else 0
        take = np.int64(keys[j] >= low) & ((1 - equal) | np.int64(room > 0))
        room -= equal
        indices[kept] = indices[j]
        kept += np.uint64(take)
    return low

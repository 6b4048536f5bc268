"""Exactly `keep` of a row: those of the largest magnitude, among equals those of the lowest index.

The k-th largest magnitude is built bit by bit, from the highest: a bit stays set while at least `keep` magnitudes reach
the number so far (31 counts of the row). Prefix sums then give each kept value its slot.
"""

from __future__ import annotations

import triton.language as tl

from trainingkit.kernels.triton_forms.options import piece


@piece
def kth_largest(magnitude, keep):
    """The largest number that at least `keep` of [lanes] int32, -1 in lanes without a value, reach."""
    found = keep * 0
    for step in range(31):
        candidate = found | (1 << (30 - step))
        count = tl.sum((magnitude >= candidate).to(tl.int32), axis=0)
        found = tl.where(count >= keep, candidate, found)
    return found


@piece
def choose(magnitude, keep):
    """Which lanes are kept, and each one's slot 0 .. keep - 1 in ascending order of the lanes."""
    threshold = kth_largest(magnitude, keep)
    above = (magnitude > threshold).to(tl.int32)
    equal = (magnitude == threshold).to(tl.int32)
    room = keep - tl.sum(above, axis=0)
    above_before = tl.cumsum(above, axis=0) - above
    equal_before = tl.cumsum(equal, axis=0) - equal
    chosen = (above > 0) | ((equal > 0) & (equal_before < room))
    return chosen, above_before + tl.minimum(equal_before, room)

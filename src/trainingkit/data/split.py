"""Which part is validation: the same on every machine, and for names independent of what else is there."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from trainingkit.data.order import SampleOrder

FILES_FOR_SPLIT = 20
"""From this many files on a corpus is split by file; below, the tail of its bytes is validation."""


def by_name(names: Sequence[str], share: float) -> list[bool]:
    """True where a name belongs to validation: its hash lies in the lowest `share` of all hashes.

    With two names or more, both sides get at least one (the lowest hash, or the highest).
    """
    places = [_place(name) for name in names]
    chosen = [place < share for place in places]
    if len(names) > 1 and not any(chosen):
        chosen[places.index(min(places))] = True
    if len(names) > 1 and all(chosen):
        chosen[places.index(max(places))] = False
    return chosen


def rows(n: int, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers of (train, validation), each sorted int64: a fixed random draw, so sorted classes stay mixed.

    Both sides get at least one row where n >= 2.
    """
    wanted = min(max(round(n * share), 1), n - 1) if n > 1 else 0
    drawn = SampleOrder(n, seed=0).indices(0, n) if n else np.zeros(0, np.int64)
    return np.sort(drawn[wanted:]), np.sort(drawn[:wanted])


def _place(name: str) -> float:
    """A number in [0, 1) that depends on the name only."""
    digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) / (1 << 53)

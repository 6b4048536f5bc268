"""Batches to measure on: a fixed subset, spread evenly, shared out over the ranks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainingkit.data.batch import Batch, gather
from trainingkit.data.contract import Source


def eval_batches(
    source: Source, batch_size: int, rank: int = 0, world_size: int = 1, limit: int | None = None
) -> Iterator[Batch]:
    """Batches of this rank's share, without shuffling; the last one may be short.

    Args:
        limit: samples of all ranks together, evenly spread over the source; None takes all. The same subset every
            time and for every world size. Ranks may get different numbers of batches, or none.
    """
    own = chosen(len(source), limit)[rank::world_size]
    for start in range(0, len(own), batch_size):
        yield gather(source, own[start : start + batch_size])


def chosen(n: int, limit: int | None) -> np.ndarray:
    """[min(n, limit)] int64: the indices that are measured on, rising and without repeats."""
    count = n if limit is None else min(n, limit)
    return np.arange(count, dtype=np.int64) * n // max(count, 1)

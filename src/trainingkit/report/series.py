"""Long series made short enough to draw, without hiding their extremes. Pure functions on arrays."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
MAX_POINTS = 2000


def edges(length: int, most: int) -> NDArray[np.int64]:
    """Borders of at most `most` bins of (nearly) equal, whole size over `length` rows: [bins + 1], 0 ... length."""
    if length == 0:
        return np.zeros(1, dtype=np.int64)
    size = -(-length // most)
    return np.append(np.arange(0, length, size, dtype=np.int64), length)


def bin_mean(values: Floats, borders: NDArray[np.int64]) -> Floats:
    """Mean of the finite values of each bin; NaN for a bin that has none. [bins]"""
    if len(borders) < 2:
        return np.zeros(0)
    finite = np.isfinite(values)
    total = np.add.reduceat(np.where(finite, values, 0.0), borders[:-1])
    count = np.add.reduceat(finite.astype(np.float64), borders[:-1])
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def keep_extremes(values: Floats, most: int = MAX_POINTS) -> NDArray[np.int64]:
    """Rows to draw, at most `most`, ascending: all when they fit, else the lowest and highest of each bin.

    A bin that holds no finite value keeps its first row, so that the gap stays visible.
    """
    if len(values) <= most:
        return np.arange(len(values))
    borders = edges(len(values), most // 2)
    low = np.where(np.isfinite(values), values, np.inf)
    high = np.where(np.isfinite(values), values, -np.inf)
    rows = [
        start + pick
        for start, end in pairwise(borders.tolist())
        for pick in (int(np.argmin(low[start:end])), int(np.argmax(high[start:end])))
    ]
    return np.unique(np.array(rows, dtype=np.int64))


def smooth(values: Floats, window: int) -> Floats:
    """Centred moving mean over `window` rows, ignoring NaN; at the borders over what there is. [rows]"""
    finite = np.isfinite(values)
    total = np.concatenate([[0.0], np.cumsum(np.where(finite, values, 0.0))])
    count = np.concatenate([[0], np.cumsum(finite)])
    rows = np.arange(len(values))
    begin = np.maximum(rows - window // 2, 0)
    end = np.minimum(rows + window // 2 + 1, len(values))
    seen = count[end] - count[begin]
    return np.where(seen > 0, (total[end] - total[begin]) / np.maximum(seen, 1), np.nan)

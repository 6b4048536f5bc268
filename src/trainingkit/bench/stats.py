"""How sure is a median? Percentile bootstrap (Efron and Tibshirani, "An Introduction to the Bootstrap", 1993).

Costs `RESAMPLES` medians of n values, some milliseconds. The generator is seeded, so that all ranks that hold the
same values get the same bounds and decide alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.90
RESAMPLES = 2000
FEWEST = 5
"""Below so many values even their whole range misses the true median more than once in ten times."""


@dataclass(frozen=True)
class Interval:
    """A value with the bounds of its 90 % interval. Bounds that so few samples cannot give are NaN."""

    value: float
    low: float
    high: float

    def within(self, low: float, high: float) -> bool:
        """True when the whole interval is inside [low, high]; never for unknown bounds."""
        return self.low >= low and self.high <= high


def median_interval(samples: Sequence[float], *, confidence: float = CONFIDENCE, seed: int = 0) -> Interval:
    """The median of `samples` and its bootstrap interval.

    Args:
        samples: independent and finite, for example one ratio per round.
        confidence: share of repetitions in which the interval holds the true median.

    Returns:
        The interval; with fewer than `FEWEST` samples the bounds are NaN, with none the value too.
    """
    values = np.asarray(samples, dtype=np.float64)
    if len(values) == 0:
        return Interval(math.nan, math.nan, math.nan)
    value = float(np.median(values))
    if len(values) < FEWEST:
        return Interval(value, math.nan, math.nan)
    picks = np.random.default_rng(seed).integers(0, len(values), size=(RESAMPLES, len(values)))
    medians = np.median(values[picks], axis=1)
    tail = (1.0 - confidence) / 2
    low, high = np.quantile(medians, [tail, 1.0 - tail])
    return Interval(value, float(low), float(high))

"""How much worse than dense: one figure per seed, and the interval of their mean.

With so few seeds a bootstrap says nothing. A gap is paired by seed (same model, same order of the data), and the
interval is Student's: mean +- t(0.95, n - 1) s / sqrt(n), which takes the gaps for normally distributed.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from trainingkit.bench.frontier.task import Metric
from trainingkit.bench.stats import Interval

T_95 = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812)
"""Student's t at 0.95 for 1, 2, ... degrees of freedom; beyond, the last one, which is on the safe side."""
UNITS: dict[Metric, str] = {"loss": "%", "accuracy": "points"}


def gap(metric: Metric, value: float | None, dense: float | None) -> float | None:
    """Per cent that the loss is above dense's, or points that the accuracy is below it; None where a run diverged.

    >>> gap("loss", 2.02, 2.0), gap("accuracy", 89.5, 90.0), gap("loss", None, 2.0)
    (1.0, 0.5, None)
    """
    if value is None or dense is None:
        return None
    return round(100 * (value / dense - 1), 6) if metric == "loss" else round(dense - value, 6)


def mean_interval(samples: Sequence[float]) -> Interval:
    """The mean of `samples` and its 90 % interval; bounds are NaN below two samples."""
    value = statistics.fmean(samples) if samples else math.nan
    if len(samples) < 2:
        return Interval(value, math.nan, math.nan)
    t = T_95[min(len(samples) - 1, len(T_95)) - 1]
    half = t * statistics.stdev(samples) / math.sqrt(len(samples))
    return Interval(value, value - half, value + half)

"""Factors fitted on other rows: a ridge regression of the log of measured over predicted on traits of the run.

Leave-one-source-out: the rows of a source are predicted with coefficients that never saw it. Each source weighs the
same in the fit, however many rows it has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainingkit.planner.score.missing import Way
from trainingkit.planner.score.rows import Row

RIDGE = 10.0
"""How many sources a trait must show before half of it is believed."""


@dataclass(frozen=True)
class Sample:
    """A row's source, its log ratio of measured to predicted, its traits."""

    source: str
    log_ratio: float
    traits: dict[str, float]


def features(row: Row, way: Way) -> dict[str, float]:
    """Traits that may explain a common error: device family, width, software, sharding."""
    del row
    return {
        "one": 1.0,
        f"gpu {way.cluster.gpu.name[:2]}": 1.0,
        "8 bit": float(way.job.precision == "fp8"),
        "flash": float(way.job.software.flash),
        "fully sharded": float(way.layout.shard == 3),
        "conv": float(way.job.is_conv),
    }


def fit(samples: Sequence[Sample], ridge: float = RIDGE) -> dict[str, float]:
    """Coefficients by trait."""
    names = sorted({name for sample in samples for name in sample.traits})
    rows_of = Counter(sample.source for sample in samples)
    weights = np.array([1.0 / rows_of[sample.source] for sample in samples])
    matrix = np.array([[sample.traits.get(name, 0.0) for name in names] for sample in samples])
    target = np.array([sample.log_ratio for sample in samples])
    scaled = matrix.T * weights
    solved = np.linalg.solve(scaled @ matrix + ridge * np.eye(len(names)), scaled @ target)
    return dict(zip(names, solved.tolist(), strict=True))


def shift_of(coefficients: dict[str, float], traits: dict[str, float]) -> float:
    """The log factor for a run with these traits."""
    return sum(coefficients.get(name, 0.0) * value for name, value in traits.items())


def leave_one_out(samples: Sequence[Sample]) -> list[float]:
    """For each sample the log factor fitted without its source."""
    sources = {sample.source for sample in samples}
    fitted = {s: fit(rest) if (rest := [x for x in samples if x.source != s]) else {} for s in sources}
    return [shift_of(fitted[sample.source], sample.traits) for sample in samples]

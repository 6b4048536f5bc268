"""Figures over predictions: by source, and as the mean of per-source means."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import mean, median
from typing import Any

from trainingkit.planner.score.calibrate import Sample, leave_one_out
from trainingkit.planner.score.floors import one_mfu_errors, repeat_floor
from trainingkit.planner.score.outcome import Excluded, MemoryRow, Predicted, Score
from trainingkit.planner.score.regret import mean_regret, sweeps
from trainingkit.planner.score.rows import Row

BySource = dict[str, float]


def summarise(
    rows: Sequence[Row],
    predictions: list[Predicted],
    memory: list[MemoryRow],
    excluded: list[Excluded],
) -> Score:
    """All figures. There is at least one prediction."""
    pairs = [(p.row, p.measured_s) for p in predictions]
    found = sweeps([(p.row, p.measured_s, p.predicted_s) for p in predictions])
    peaks = [m for m in memory if m.measured_gib]
    columns = {
        "stock": by_source((p.row.source, abs(p.error)) for p in predictions),
        "bias": by_source((p.row.source, p.error) for p in predictions),
        "factor": factors(predictions),
        "factored": _factored(predictions),
        "loso": _left_out(predictions),
        "mem": by_source((m.row.source, abs(m.predicted_gib / (m.measured_gib or 1.0) - 1)) for m in peaks),
        "trivial": by_source(one_mfu_errors(pairs)),
    }
    checks = {
        "mape_stock": _mean(columns["stock"]),
        "mape_factor": _mean(columns["factored"]),
        "mape_loso": _mean(columns["loso"]),
        "mem_mape": _mean(columns["mem"]),
        **_fits(memory),
        "regret_top1": mean_regret(found, "top1"),
        "regret_top3": mean_regret(found, "top3"),
    }
    floor, widest, repeats = repeat_floor(pairs)
    timed = len(predictions) + len(excluded)
    facts = {
        "rows": len(rows),
        "with_step_time": timed,
        "usable": len(predictions),
        "excluded_share": len(excluded) / timed,
        "floor": floor,
        "widest_repeat": widest,
        "rows_with_repeats": repeats,
        "trivial": _mean(columns["trivial"]),
        "memory_rows": len(peaks),
        "oom_rows": sum(m.oom for m in memory),
        "sweeps": found,
    }
    return Score(checks, _table(predictions, columns), excluded, predictions, memory, facts)


def by_source(items: Iterable[tuple[str, float]]) -> BySource:
    """Mean of each source."""
    groups: dict[str, list[float]] = defaultdict(list)
    for source, value in items:
        groups[source].append(value)
    return {source: mean(values) for source, values in groups.items()}


def factors(predictions: Sequence[Predicted]) -> BySource:
    """One factor for each source: the median of measured over predicted."""
    groups: dict[str, list[float]] = defaultdict(list)
    for p in predictions:
        groups[p.row.source].append(p.measured_s / p.predicted_s)
    return {source: median(ratios) for source, ratios in groups.items()}


def _factored(predictions: Sequence[Predicted]) -> BySource:
    found = factors(predictions)
    return by_source((p.row.source, abs(p.predicted_s * found[p.row.source] / p.measured_s - 1)) for p in predictions)


def _left_out(predictions: Sequence[Predicted]) -> BySource:
    samples = [Sample(p.row.source, math.log(p.measured_s / p.predicted_s), p.traits) for p in predictions]
    shifts = leave_one_out(samples)
    errors = (abs(p.predicted_s * math.exp(s) / p.measured_s - 1) for p, s in zip(predictions, shifts, strict=True))
    return by_source(zip((p.row.source for p in predictions), errors, strict=True))


def _fits(memory: Sequence[MemoryRow]) -> dict[str, float]:
    """How many that ran out would have been called fits, and which share of those that ran would have been refused."""
    ran = [m for m in memory if not m.oom]
    refused = sum(not m.fits for m in ran) / max(1, len(ran))
    return {"oom_called_fit": float(sum(m.fits for m in memory if m.oom)), "fit_refused": refused}


def _table(predictions: Sequence[Predicted], columns: dict[str, BySource]) -> list[dict[str, Any]]:
    """One row for each source; a figure that it lacks is None."""
    counts: dict[str, int] = defaultdict(int)
    for p in predictions:
        counts[p.row.source] += 1
    return [
        {"source": source, "rows": count, **{name: found.get(source) for name, found in columns.items()}}
        for source, count in counts.items()
    ]


def _mean(found: BySource) -> float:
    """Mean over sources; NaN where there is none."""
    return mean(found.values()) if found else math.nan

"""From the rows of a file to predictions of their step time and memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from trainingkit.core.errors import DataError
from trainingkit.planner.cost import predict
from trainingkit.planner.memory import peak_memory
from trainingkit.planner.score.calibrate import features
from trainingkit.planner.score.missing import Way, ways_of
from trainingkit.planner.score.outcome import Excluded, MemoryRow, Predicted, Score
from trainingkit.planner.score.rows import Row, read_rows
from trainingkit.planner.score.summary import summarise

GIB = 2.0**30


def score_file(path: Path, *, show: Callable[[float], None] | None = None) -> Score:
    """Score a file of measured runs.

    Raises:
        DataError: the file cannot be used.
    """
    rows = read_rows(path)
    predictions: list[Predicted] = []
    memory: list[MemoryRow] = []
    excluded: list[Excluded] = []
    for place, row in enumerate(rows):
        ways = ways_of(row)
        measured = row.step_s
        if isinstance(ways, str):
            if measured or row.text("step_time_s"):
                excluded.append(Excluded(row.name, row.source, ways))
            continue
        if measured:
            predictions.append(_predict(row, measured, ways))
        memory.append(_memory(row, ways))
        if show is not None:
            show((place + 1) / len(rows))
    if not predictions:
        raise DataError(
            "No row can be predicted.",
            field="FILE",
            found=f"{path}: {len(rows)} rows; " + (excluded[0].why if excluded else "none has a step time"),
            expected="rows with a model, a GPU, degrees, a batch and a step time",
            next_step="Fill in what is missing.",
        )
    return summarise(rows, predictions, memory, excluded)


def _predict(row: Row, measured_s: float, ways: Sequence[Way]) -> Predicted:
    """The weighted geometric mean of all readings, and their range."""
    times = [predict(way.job, way.cluster, way.layout).step_s for way in ways]
    middle = math.exp(sum(way.weight * math.log(t) for way, t in zip(ways, times, strict=True)))
    return Predicted(row, measured_s, middle, min(times), max(times), features(row, ways[0]))


def _memory(row: Row, ways: Sequence[Way]) -> MemoryRow:
    """The weighted mean of all readings. PyTorch's own peaks do not contain what the allocator cannot see."""
    found = [peak_memory(way.job, way.cluster, way.layout) for way in ways]
    seen = "nvidia-smi" in row.text("notes")
    totals = [m.total if seen else m.total - m.outside for m in found]
    total = sum(way.weight * t for way, t in zip(ways, totals, strict=True)) / GIB
    high = sum(way.weight * m.high for way, m in zip(ways, found, strict=True)) / GIB
    capacity = ways[0].cluster.gpu.memory_gib
    return MemoryRow(row, row.number("peak_mem_gib"), total, high, capacity, row.text("outcome") == "OOM")

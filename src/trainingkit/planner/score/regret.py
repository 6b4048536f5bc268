"""How much slower is the layout that the planner would have chosen than the best that was measured?

A sweep is what one source measured of one model, device count, length, batch and precision, under several layouts.
Repeats of a layout count with their median. Regret of the first choice, and of the best among the first three.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import mean, median
from typing import Any

from trainingkit.planner.score.rows import Row

SAME = ("source", "params_b", "layers", "hidden", "heads", "gpu", "n_gpus", "seq_len", "global_batch", "precision")
FEWEST = 4
"""Layouts that a sweep must have for its choice to mean something."""
SWEEPS = ("vTrain ground truth (multi-node)", "BigScience BLOOM")


def sweeps(items: Sequence[tuple[Row, float, float]]) -> list[dict[str, Any]]:
    """All sweeps of (row, measured, predicted): name, layouts, regrets."""
    groups: dict[tuple[str, ...], dict[tuple[str, ...], list[tuple[float, float]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for row, measured, predicted in items:
        if row.source.startswith(SWEEPS):
            groups[tuple(row.text(column) for column in SAME)][row.key].append((measured, predicted))
    return [_judge(same, layouts) for same, layouts in groups.items() if len(layouts) >= FEWEST]


def _judge(same: tuple[str, ...], layouts: dict[tuple[str, ...], list[tuple[float, float]]]) -> dict[str, Any]:
    pairs = [(median(m for m, _ in found), mean(p for _, p in found)) for found in layouts.values()]
    best = min(measured for measured, _ in pairs)
    ranked = [measured for measured, _ in sorted(pairs, key=lambda pair: pair[1])]
    return {
        "source": same[0],
        "model": f"{same[1]} B, {same[2]} layers, {same[4]} heads, {same[6]} GPUs, batch {same[8]}",
        "layouts": len(pairs),
        "top1": ranked[0] / best - 1,
        "top3": min(ranked[:3]) / best - 1,
    }


def mean_regret(found: Sequence[dict[str, Any]], which: str) -> float:
    """Mean over the sweeps of a source, then over sources."""
    by_source: dict[str, list[float]] = defaultdict(list)
    for sweep in found:
        by_source[sweep["source"]].append(sweep[which])
    return mean(mean(values) for values in by_source.values()) if by_source else 0.0

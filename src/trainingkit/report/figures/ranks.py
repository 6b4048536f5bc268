"""Ranks side by side: one horizontal bar each, its mean step by phase, the slowest marked."""

from __future__ import annotations

from typing import Any

from trainingkit.report.figures.style import Figure, axes, label, numbers, phase_marker
from trainingkit.report.steptable import phase_names
from trainingkit.report.summary import Comparison, RankMeans

ROW_PX = 30
FRAME_PX = 130


def phases_per_rank(comparison: Comparison) -> Figure:
    """Mean seconds a step by phase, rank 0 on top."""
    ranks = comparison.ranks
    names = phase_names([rank.phases for rank in ranks])
    labels = [rank_label(rank, comparison) for rank in ranks]
    data = [_bars(ranks, labels, name) for name in names]
    layout = axes("seconds a step", "") | {"barmode": "stack", "bargap": 0.25}
    layout["yaxis"] |= {"autorange": "reversed", "type": "category", "dtick": 1}
    caption = "Mean over the steps that all of these ranks took. All ranks take a step together, so a rank that needs"
    caption += " less time by itself waits (stall) for the slowest."
    if comparison.slowest is not None:
        caption += f" Slowest: rank {comparison.slowest.rank}, marked with an arrow."
    if comparison.left_out:
        caption += f" Left out, as only in earlier attempts: rank {', '.join(map(str, comparison.left_out))}."
    height = FRAME_PX + ROW_PX * max(2, len(ranks))
    return Figure("ranks", "Ranks side by side", caption, data, layout, height=height)


def rank_label(rank: RankMeans, comparison: Comparison) -> str:
    """'rank 1', its host below or beside it, and an arrow when it is the slowest."""
    slowest = comparison.slowest is not None and comparison.slowest.rank == rank.rank
    name = f"<b>▶ rank {rank.rank}</b>" if slowest else f"rank {rank.rank}"
    if not rank.host:
        return name
    return f"{name} · {label(rank.host, 14)}" if len(comparison.ranks) > 12 else f"{name}<br>{label(rank.host, 18)}"


def _bars(ranks: tuple[RankMeans, ...], labels: list[str], name: str) -> dict[str, Any]:
    return {
        "type": "bar",
        "orientation": "h",
        "name": label(name, 24),
        "x": numbers(rank.phases.get(name, 0.0) for rank in ranks),
        "y": labels,
        "marker": phase_marker(name),
        "hovertemplate": f"{label(name, 24)} %{{x:.3s}}s<br>%{{y}}<extra></extra>",
    }

"""Quality against bits, a plot per task: every scheme a mark, and the line of those that no other beats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trainingkit.report.figures.style import TEXT_COLOUR, Figure, axes, capped_range, label, numbers

Row = Mapping[str, Any]
SIDES = {"gradient": ("#0072b2", "circle"), "update": ("#d55e00", "diamond")}
PRESET_COLOUR = "#009e73"
"""Rim of the mark of a published preset."""


def gap_against_bits(task: str, title: str, rows: Sequence[Row]) -> Figure:
    """Gap to dense over bits per parameter and step, the latter on a logarithmic axis."""
    shown = [row for row in rows if row["gap"] is not None]
    data = [_marks(side, [row for row in shown if row["side"] == side]) for side in SIDES]
    data = [trace for trace in data if trace["x"]]
    line = on_frontier(shown)
    if line:
        data.append(_line(line))
    unit = rows[0]["unit"] if rows else ""
    layout = axes("bits per parameter and step, one way", f"gap to dense, {unit}")
    layout["xaxis"] |= {"type": "log", "dtick": "D2"}
    caption = "Lower and further left is better. Whiskers are the 90 % interval over the seeds; a green rim is a"
    caption += " published preset. The line joins the schemes that no other beats."
    cut = capped_range(np.array([row["gap"] for row in shown], dtype=np.float64))
    if cut is not None:
        lowest = min(0.0, *(row["gap"] for row in shown))
        layout["yaxis"]["range"] = [lowest - 0.05 * (cut[1] - lowest), cut[1]]
        caption += f" The axis is cut: the largest gap is {max(row['gap'] for row in shown):.1f} {unit}."
    return Figure(f"frontier-{task}", title, caption, data, layout, height=420)


def on_frontier(rows: Sequence[Row]) -> list[Row]:
    """The rows on the frontier, by bits."""
    return sorted((row for row in rows if row["on_frontier"]), key=lambda row: row["bits"])


def _marks(side: str, rows: Sequence[Row]) -> dict[str, Any]:
    colour, symbol = SIDES[side]
    has_bounds = [row["gap_low"] is not None for row in rows]
    above = [row["gap_high"] - row["gap"] if known else 0.0 for row, known in zip(rows, has_bounds, strict=True)]
    rims = [PRESET_COLOUR if row["preset"] else colour for row in rows]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": f"{side} is coded",
        "x": numbers(row["bits"] for row in rows),
        "y": numbers(row["gap"] for row in rows),
        "text": [hover(row) for row in rows],
        "hovertemplate": "%{text}<extra></extra>",
        "error_y": {"type": "data", "array": numbers(above), "thickness": 1, "width": 3},
        "marker": {"color": colour, "symbol": symbol, "size": 9, "line": {"width": 2, "color": rims}},
    }


def hover(row: Row) -> str:
    """What the pointer shows of a scheme."""
    lines = [label(row["label"]), f"{row['bits']:.3g} bits, 1/{row['ratio']:.3g} of fp32"]
    lines.append(f"gap {row['gap']:.2f} {row['unit']} over {len(row['gaps'])} seed(s)")
    return "<br>".join(lines)


def _line(rows: Sequence[Row]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "frontier",
        "x": numbers(row["bits"] for row in rows),
        "y": numbers(row["gap"] for row in rows),
        "line": {"color": TEXT_COLOUR, "width": 1.5, "shape": "hv"},
        "hoverinfo": "skip",
    }

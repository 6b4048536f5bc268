"""Where each step's time went: stacked bars over the steps, seconds by phase, mean over ranks."""

from __future__ import annotations

from typing import Any

import numpy as np

from trainingkit.core.units import format_seconds
from trainingkit.report.figures.style import TEXT_COLOUR, Figure, axes, capped_range, label, numbers, phase_marker
from trainingkit.report.series import bin_mean, edges
from trainingkit.report.steptable import StepTable

MAX_BARS = 120


def phases_over_steps(table: StepTable) -> Figure:
    """At most MAX_BARS bars; each stands for the mean of its steps. Hidden work is a line beside them."""
    borders = edges(len(table), MAX_BARS)
    phases = {name: bin_mean(seconds, borders) for name, seconds in table.phases.items() if (seconds > 0).any()}
    data = [_bars(table, borders, name, means) for name, means in phases.items()]
    hidden = sum(table.hidden.values(), np.zeros(len(table)))
    if data and table.hidden:
        data.append(_hidden(table, borders, bin_mean(hidden, borders), list(table.hidden)))
    layout = axes("step", "seconds a step") | {"barmode": "stack", "bargap": 0.08}
    layout["xaxis"]["tickformat"] = "d"
    caption = "Mean over ranks; the height of a bar is the time of a step. Hatched parts are waiting."
    if len(table) > MAX_BARS:
        caption += f" Each bar is the mean of {int(borders[1])} steps."
    heights = sum(phases.values(), np.zeros(len(borders) - 1))
    cut = capped_range(heights)
    if cut is not None:
        layout["yaxis"]["range"] = list(cut)
        caption += f" The axis is cut: the longest bar is {format_seconds(float(np.nanmax(heights)))}."
    if table.hidden:
        caption += " The dashed line is work that ran behind backward; it is not part of the bars."
    return Figure("phases", "Where each step's time went", caption, data, layout, height=400)


def _bars(table: StepTable, borders: np.ndarray, name: str, means: np.ndarray) -> dict[str, Any]:
    first, last = table.step[borders[:-1]], table.step[borders[1:] - 1]
    spans = [str(a) if a == b else f"{a} to {b}" for a, b in zip(first.tolist(), last.tolist(), strict=True)]
    return {
        "type": "bar",
        "name": label(name, 24),
        "x": ((first + last) / 2).tolist(),
        "width": (last - first + 1).tolist(),
        "y": numbers(means),
        "marker": phase_marker(name),
        "customdata": spans,
        "hovertemplate": f"{label(name, 24)} %{{y:.3s}}s<br>step %{{customdata}}<extra></extra>",
    }


def _hidden(table: StepTable, borders: np.ndarray, means: np.ndarray, names: list[str]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines" if len(means) > 1 else "markers",
        "name": label(f"hidden {', '.join(names)}", 48),
        "x": ((table.step[borders[:-1]] + table.step[borders[1:] - 1]) / 2).tolist(),
        "y": numbers(means),
        "line": {"color": TEXT_COLOUR, "width": 2, "dash": "dash"},
        "hovertemplate": "hidden %{y:.3s}s<extra></extra>",
    }

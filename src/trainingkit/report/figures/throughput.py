"""How fast, and at what price on the network: tokens a second of all ranks, and bytes a rank sent, step by step."""

from __future__ import annotations

from typing import Any

import numpy as np

from trainingkit.report.figures.style import BYTES_COLOUR, THROUGHPUT_COLOUR, Figure, axes, numbers
from trainingkit.report.series import MAX_POINTS, bin_mean, edges
from trainingkit.report.steptable import StepTable


def tokens_per_second(table: StepTable, *, word: str = "tokens") -> Figure:
    """Tokens (or samples) a second, summed over ranks."""
    caption = f"{word.capitalize()} of all ranks together, by the seconds of the slowest rank. Higher is better."
    data, more = _line(table, table.tokens_per_s, colour=THROUGHPUT_COLOUR, unit=f" {word} a second")
    layout = axes("step", f"{word} a second", rangemode="tozero", tickformat="~s")
    return Figure("throughput", "Throughput", caption + more, data, layout, height=280)


def bytes_per_step(table: StepTable) -> Figure:
    """Bytes one rank sent for a step's exchange, mean over ranks."""
    caption = "What one rank sent to the others for a step, mean over ranks. Lower is better on a slow network."
    data, more = _line(table, table.wire_bytes, colour=BYTES_COLOUR, unit="B")
    layout = axes("step", "sent per rank and step", range=_from_zero(table.wire_bytes), tickformat="~s", ticksuffix="B")
    return Figure("bytes", "Bytes on the wire", caption + more, data, layout, height=280)


def _from_zero(values: np.ndarray) -> list[float]:
    """An axis on which a constant line keeps off the frame, and on which zero is zero."""
    return [0.0, 1.1 * float(np.max(values, initial=0.0)) or 1.0]


def _line(table: StepTable, values: np.ndarray, *, colour: str, unit: str) -> tuple[list[dict[str, Any]], str]:
    if not np.isfinite(values).any():
        return [], ""
    borders = edges(len(values), MAX_POINTS)
    size = int(borders[1])
    trace = {
        "type": "scatter",
        "mode": "lines" if len(values) > 20 else "lines+markers",
        "x": table.step[borders[:-1]].tolist(),
        "y": numbers(bin_mean(values, borders)),
        "line": {"color": colour, "width": 2},
        "showlegend": False,
        "hovertemplate": f"step %{{x}}<br>%{{y:.4s}}{unit}<extra></extra>",
    }
    return [trace], f" Each point is the mean of {size} steps." if size > 1 else ""

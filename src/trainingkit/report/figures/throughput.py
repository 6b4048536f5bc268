"""How fast, and at what price on the network: tokens a second of all ranks, and bytes a rank sent, step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trainingkit.report.figures.style import BYTES_COLOUR, REFERENCE_COLOUR, THROUGHPUT_COLOUR, Figure, axes, numbers
from trainingkit.report.series import MAX_POINTS, bin_mean, edges
from trainingkit.report.steptable import StepTable


def tokens_per_second(table: StepTable, *, word: str = "tokens") -> Figure:
    """Tokens (or samples) a second, summed over ranks."""
    caption = f"{word.capitalize()} of all ranks together, by the seconds of the slowest rank. Higher is better."
    data, more = _line(table, table.tokens_per_s, colour=THROUGHPUT_COLOUR, unit=f" {word} a second")
    layout = axes("step", f"{word} a second", rangemode="tozero", tickformat="~s")
    return Figure("throughput", "Throughput", caption + more, data, layout, height=280)


def bytes_per_step(table: StepTable, plain: Mapping[str, float] | None = None) -> Figure:
    """Bytes one rank sent for a step's exchange, mean over ranks.

    Args:
        plain: what plain DDP would send, by the name of its wire ("fp32", "bf16"); drawn as dashed lines.
    """
    caption = "What one rank sent to the others for a step, mean over ranks. Lower is better on a slow network."
    data, more = _line(table, table.wire_bytes, colour=BYTES_COLOUR, unit="B")
    levels = {name: level for name, level in (plain or {}).items() if data and level > 0}
    if levels:
        more += " Dashed: what plain DDP would send."
    data += [_level(table, name, level) for name, level in levels.items()]
    span = _from_zero(table.wire_bytes, list(levels.values()))
    layout = axes("step", "sent per rank and step", range=span, tickformat="~s", ticksuffix="B")
    return Figure("bytes", "Bytes on the wire", caption + more, data, layout, height=280)


def _from_zero(values: np.ndarray, levels: Sequence[float]) -> list[float]:
    """An axis on which a constant line keeps off the frame, and on which zero is zero."""
    return [0.0, 1.1 * max(float(np.max(values, initial=0.0)), *levels, 0.0) or 1.0]


def _level(table: StepTable, name: str, level: float) -> dict[str, Any]:
    """A dashed line across the plot, with its name at the right end."""
    return {
        "type": "scatter",
        "mode": "lines+text",
        "x": [int(table.step[0]), int(table.step[-1])],
        "y": [level, level],
        "text": ["", f"plain {name}"],
        "textposition": "bottom left",
        "line": {"color": REFERENCE_COLOUR, "width": 1, "dash": "dash"},
        "showlegend": False,
        "hovertemplate": f"plain DDP, {name} wire<br>%{{y:.4s}}B<extra></extra>",
    }


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

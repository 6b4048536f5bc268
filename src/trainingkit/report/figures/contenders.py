"""Contenders of a bench side by side: share of the limit's speed, step time, bytes, losses. From a result's rows."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from trainingkit.core.units import format_seconds
from trainingkit.report.figures.style import (
    BYTES_COLOUR,
    PHASE_COLOURS,
    THROUGHPUT_COLOUR,
    Figure,
    axes,
    label,
    numbers,
)

Row = Mapping[str, Any]
ROW_PX = 44
FRAME_PX = 110
LABEL_COLUMNS = 22
LINE_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c5a2b", "#999999")
GOAL_SHARE = 0.95


def kept_shares(rows: Sequence[Row]) -> Figure:
    """Share of the no-communication speed that each contender keeps, with its 90 % interval."""
    shown = [row for row in rows if row.get("kept_share") is not None]
    data = [_bars(shown, "kept_share", "share of the limit's speed", THROUGHPUT_COLOUR)] if shown else []
    for trace in data:
        trace["error_x"] = _interval(shown, "kept_share", "kept_low", "kept_high")
    layout: dict[str, Any] = _rows_layout("share of the speed without communication")
    layout["xaxis"] |= {"range": [0, 1.15], "tickformat": ".0%"}
    layout["shapes"] = [_goal_line(GOAL_SHARE)]
    caption = "Longer is better; 100 % is the speed without any communication. The whiskers are the 90 % interval, the"
    caption += f" dashed line is the goal, {GOAL_SHARE:.0%}. A bar without whiskers has too few turns for an interval."
    return Figure("kept", "How much of the speed is kept", caption, data, layout, height=_height(shown))


def step_times(rows: Sequence[Row], limit_s: float | None) -> Figure:
    """Median step time: what computing takes, and what the network adds."""
    shown = [row for row in rows if row.get("step_s") is not None]
    data: list[dict[str, Any]] = []
    if shown and limit_s is not None:
        parts = (("computing", PHASE_COLOURS["backward"]), ("added by the exchange", PHASE_COLOURS["stall"]))
        seconds = [[min(row["step_s"], limit_s) for row in shown], [max(0.0, row["step_s"] - limit_s) for row in shown]]
        for (name, colour), values in zip(parts, seconds, strict=True):
            data.append(_trace(shown, values, name, colour) | {"hovertemplate": f"{name} %{{x:.3s}}s<extra></extra>"})
    layout = _rows_layout("seconds a step", barmode="stack")
    caption = "Shorter is better. The first part is the step without communication, the second what the exchange adds."
    return Figure("step", "Where a step's time goes", caption, data, layout, height=_height(shown))


def sent_bytes(rows: Sequence[Row]) -> Figure:
    """Bytes a step that left one host: by the interface's counters, and by what the contender says."""
    shown = [row for row in rows if row.get("said_bytes")]
    data = []
    for name, key, colour in (("interface counters", "wire_bytes", BYTES_COLOUR), ("said", "said_bytes", "#999999")):
        if any(row.get(key) for row in shown):
            values = [row.get(key) or 0.0 for row in shown]
            data.append(_trace(shown, values, name, colour) | {"hovertemplate": f"{name} %{{x:.3s}}B<extra></extra>"})
    layout = _rows_layout("bytes a step", barmode="group")
    layout["xaxis"] |= {"type": "log", "tickformat": "~s", "dtick": "D2"}
    caption = "Shorter is better; the axis is logarithmic. Counters include headers and acknowledgements."
    return Figure("bytes", "What a host sends", caption, data, layout, height=_height(shown) + 20 * len(shown))


def losses_over_steps(rows: Sequence[Row]) -> Figure:
    """Validation loss against steps."""
    data = [_curve(row, number, 1.0, "step") for number, row in enumerate(_with_curve(rows))]
    caption = "Lower is better. Every contender saw the same batches; what differs is how the gradients travelled."
    return Figure("loss-steps", "Loss after equal steps", caption, data, axes("step", "validation loss"))


def losses_over_time(rows: Sequence[Row]) -> Figure:
    """Validation loss against time: the steps, each as long as the contender's median step on the shaped links."""
    shown = [row for row in _with_curve(rows) if row.get("step_s") is not None]
    data = [_curve(row, number, row["step_s"], "second") for number, row in enumerate(shown)]
    times = [row["curve"][-1][0] * row["step_s"] for row in shown]
    layout = axes("seconds of training", "validation loss")
    caption = "Lower and further left is better. The same losses; a step lasts as long as it did on the shaped links."
    if times and max(times) > 3 * sorted(times)[len(times) // 2]:
        layout["xaxis"]["range"] = [0, 3 * sorted(times)[len(times) // 2]]
        caption += f" The axis is cut: the slowest curve ends after {format_seconds(max(times))}."
    return Figure("loss-time", "Loss after equal time", caption, data, layout)


def _bars(rows: Sequence[Row], key: str, name: str, colour: str) -> dict[str, Any]:
    trace = _trace(rows, [row[key] for row in rows], name, colour)
    return trace | {"showlegend": False, "hovertemplate": f"{name} %{{x:.3f}}<extra></extra>"}


def _trace(rows: Sequence[Row], values: Sequence[float], name: str, colour: str) -> dict[str, Any]:
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "x": numbers(values),
        "y": [_row_label(row) for row in rows],
        "marker": {"color": colour, "line": {"width": 0}},
    }


def _row_label(row: Row) -> str:
    lines = textwrap.wrap(str(row["label"]), LABEL_COLUMNS)
    return "<br>".join(label(line, 2 * LABEL_COLUMNS) for line in lines)


def _interval(rows: Sequence[Row], value: str, low: str, high: str) -> dict[str, Any]:
    above = [0.0 if row[high] is None else row[high] - row[value] for row in rows]
    below = [0.0 if row[low] is None else row[value] - row[low] for row in rows]
    return {"type": "data", "symmetric": False, "array": numbers(above), "arrayminus": numbers(below), "thickness": 2}


def _goal_line(at: float) -> dict[str, Any]:
    line = {"color": "#d55e00", "width": 2, "dash": "dash"}
    return {"type": "line", "x0": at, "x1": at, "y0": 0, "y1": 1, "yref": "paper", "line": line}


def _rows_layout(x: str, **more: Any) -> dict[str, Any]:
    layout = {**axes(x, ""), "bargap": 0.3, **more}
    layout["yaxis"] |= {"autorange": "reversed", "type": "category", "dtick": 1}
    return layout


def _height(rows: Sequence[Row]) -> int:
    return FRAME_PX + ROW_PX * max(2, len(rows))


def _with_curve(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.get("curve")]


def _curve(row: Row, number: int, scale: float, unit: str) -> dict[str, Any]:
    name = label(row["label"], 40)
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": numbers([step * scale for step, _ in row["curve"]]),
        "y": numbers([loss for _, loss in row["curve"]]),
        "line": {"color": LINE_COLOURS[number % len(LINE_COLOURS)], "width": 2},
        "hovertemplate": f"{name}<br>%{{y:.4f}} at {unit} %{{x}}<extra></extra>",
    }

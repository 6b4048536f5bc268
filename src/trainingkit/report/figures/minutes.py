"""Validation loss against minutes of training on one link, of all contenders; the minutes on a logarithmic axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainingkit.report.figures.contenders import LINE_COLOURS
from trainingkit.report.figures.style import Figure, axes, label, numbers

Row = Mapping[str, Any]
DASHES = ("solid", "dash", "dot")
"""Of the first contenders, those beyond the colours, and so on."""


def loss_against_minutes(link: str, rows: Sequence[Row], target: float | None) -> Figure:
    """One link's curves.

    Args:
        target: drawn as a dashed line, where it is known.
    """
    shown = [row for row in rows if row["curve"] and row["step_s"] is not None]
    data = [_curve(row, number) for number, row in enumerate(shown)]
    layout = axes("minutes of training", "validation loss")
    layout["xaxis"] |= {"type": "log"}
    if target is not None:
        line = {"color": "#333333", "width": 1, "dash": "dash"}
        layout["shapes"] = [
            {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": target, "y1": target, "line": line}
        ]
    caption = (
        "Lower and further left is better; the minutes' axis is logarithmic. A step lasts as long as it did on the "
        "shaped links; the dashed line is the loss at which plain DDP with AdamW ends, the mean of its seeds. Curves "
        "are those of the first seed."
    )
    return Figure(f"minutes-{link}", f"Loss against minutes at {link}", caption, data, layout)


def _curve(row: Row, number: int) -> dict[str, Any]:
    name = label(row["label"], 60)
    points = [(step * row["step_s"] / 60, loss) for step, loss in row["curve"] if step > 0]
    dash = DASHES[number // len(LINE_COLOURS) % len(DASHES)]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": numbers([minutes for minutes, _ in points]),
        "y": numbers([loss for _, loss in points]),
        "line": {"color": LINE_COLOURS[number % len(LINE_COLOURS)], "width": 3 if row["judged"] else 2, "dash": dash},
        "hovertemplate": f"{name}<br>%{{y:.4f}} after %{{x:.1f}} minutes<extra></extra>",
    }

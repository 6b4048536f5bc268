"""Loss against step and against time: training (each step faint, the trend bold), validation, and marks for events."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np

from trainingkit.report.figures.marks import mark_traces, marks_of
from trainingkit.report.figures.style import NOTHING, TRAIN_COLOUR, VALIDATION_COLOUR, Figure, axes, numbers
from trainingkit.report.rundata import RunData
from trainingkit.report.series import MAX_POINTS, keep_extremes, smooth
from trainingkit.report.steptable import StepTable, place
from trainingkit.report.summary import finite, validation_unit

_MARK_AXIS = {"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True}


def loss_against_step(run: RunData, table: StepTable) -> Figure:
    """x is the step."""
    return _figure(run, table, "loss-step", "Loss against step", "step", against_time=False)


def loss_against_time(run: RunData, table: StepTable) -> Figure:
    """x is the training time in seconds; pauses between attempts are left out."""
    return _figure(run, table, "loss-time", "Loss against time", "seconds of training", against_time=True)


def unit_scale(run: RunData) -> tuple[str, float]:
    """The unit of the loss axis, and what a training loss is multiplied by to be in it.

    Bits per byte are a fixed multiple of the loss of a language model; the evaluations, which have both, say which.
    """
    ratios = []
    for record in run.evals:
        bits, loss = finite(record.metrics.get("bits_per_byte")), finite(record.metrics.get("loss"))
        if bits is not None and loss:
            ratios.append(bits / loss)
    return ("bits per byte", statistics.median(ratios)) if ratios else ("loss", 1.0)


def _figure(run: RunData, table: StepTable, name: str, title: str, x_title: str, *, against_time: bool) -> Figure:
    unit, scale = unit_scale(run)
    x = table.elapsed_s if against_time else table.step.astype(np.float64)
    data = _training(x, table.loss * scale, unit) + _validation(run, table, unit, against_time)
    if data:
        data += mark_traces(marks_of(table, run.events), against_time=against_time)
    layout = axes(x_title, unit) | {"yaxis2": _MARK_AXIS}
    if not against_time:
        layout["xaxis"]["tickformat"] = "d"
    empty = "No loss was a finite number, so there is no curve to draw." if len(table) else NOTHING
    return Figure(name, title, _caption(table, unit, against_time), data, layout, empty)


def _training(x: np.ndarray, y: np.ndarray, unit: str) -> list[dict[str, Any]]:
    if not np.isfinite(y).any():
        return []
    rows = keep_extremes(y)
    single = len(rows) < 20
    raw = _line(x[rows], y[rows], "training", f"training {unit}")
    if single:
        return [raw | {"mode": "lines+markers", "line": {"color": TRAIN_COLOUR, "width": 2}}]
    raw |= {"line": {"color": TRAIN_COLOUR, "width": 1}, "opacity": 0.4, "name": "training, each step"}
    trend = smooth(y, max(5, len(y) // 40))
    shown = np.arange(0, len(y), -(-len(y) // MAX_POINTS))
    bold = _line(x[shown], trend[shown], "training, trend", f"trend of training {unit}")
    return [raw, bold | {"line": {"color": TRAIN_COLOUR, "width": 2.5}}]


def _line(x: np.ndarray, y: np.ndarray, name: str, hover: str) -> dict[str, Any]:
    template = f"{hover} %{{y}}<br>at %{{x}}<extra></extra>"
    shape = {"type": "scatter", "mode": "lines", "name": name, "hovertemplate": template}
    return shape | {"x": numbers(x, 7), "y": numbers(y)}


def _validation(run: RunData, table: StepTable, unit: str, against_time: bool) -> list[dict[str, Any]]:
    metric = validation_unit(run)
    if metric is None or all(finite(e.metrics.get(metric)) is None for e in run.evals):
        return []
    xs = [place(table, e) if against_time else float(e.step) for e in run.evals]
    ys = [e.metrics.get(metric) for e in run.evals]
    line = _line(np.array(xs), np.array([np.nan if finite(y) is None else y for y in ys], dtype=np.float64), "", "")
    return [
        line
        | {
            "mode": "lines+markers",
            "name": "validation",
            "line": {"color": VALIDATION_COLOUR, "width": 2},
            "marker": {"size": 9, "symbol": "circle", "line": {"width": 1, "color": "#ffffff"}},
            "hovertemplate": f"validation {unit} %{{y}}<br>at %{{x}}<extra></extra>",
        }
    ]


def _caption(table: StepTable, unit: str, against_time: bool) -> str:
    text = "Lower is better. Training is the mean over ranks, weighted by their tokens; the trend is a moving mean."
    if against_time:
        text = "The same, with the time that training took on the x axis. Pauses between attempts are left out."
    elif unit == "bits per byte":
        text += " Training loss is converted to the unit of validation, bits per byte."
    if len(table) > MAX_POINTS:
        text += f" The faint line keeps the lowest and highest of every {-(-len(table) // (MAX_POINTS // 2))} steps."
    return text

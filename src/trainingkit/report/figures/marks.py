"""Events as marks over a plot: a vertical line where the run was disturbed, a small triangle for a snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainingkit.core.records import EventRecord
from trainingkit.report.figures.style import label
from trainingkit.report.steptable import StepTable, place

MAX_MARKS = 300
_QUIET = "snapshot"
_STYLES = {
    "snapshot": ("#7f7f7f", "triangle-up"),
    "resume": ("#009e73", "diamond"),
    "abort": ("#cc79a7", "x"),
    "preempted": ("#e69f00", "square"),
    "early_stop": ("#56b4e9", "square"),
    "error": ("#d55e00", "x"),
    "loss not finite": ("#d55e00", "cross"),
}


@dataclass(frozen=True)
class Mark:
    """One mark: a kind, its place on both x axes, and what to say on hover."""

    kind: str
    step: int
    elapsed_s: float
    text: str


def marks_of(table: StepTable, events: Sequence[EventRecord]) -> list[Mark]:
    """Marks for events, for aborted steps that no event tells of, and for committed steps without a finite loss."""
    marks = [Mark(str(e.event), e.step, place(table, e), f"step {e.step}: {e.event}. {e.text}") for e in events]
    told = {e.step for e in events if e.event == "abort"}
    for row in (~table.committed).nonzero()[0]:
        step = int(table.step[row])
        if step not in told:
            marks.append(Mark("abort", step, float(table.elapsed_s[row]), f"step {step} was aborted"))
    for row in ((table.loss != table.loss) & table.committed).nonzero()[0]:
        step = int(table.step[row])
        marks.append(
            Mark("loss not finite", step, float(table.elapsed_s[row]), f"step {step}: the loss was not finite")
        )
    return marks


def mark_traces(marks: Sequence[Mark], *, against_time: bool) -> list[dict[str, Any]]:
    """One trace per kind, on a second y axis that runs from 0 to 1. Of a kind, the first MAX_MARKS are drawn."""
    kinds = list(dict.fromkeys(mark.kind for mark in marks))
    return [_trace(kind, [m for m in marks if m.kind == kind], against_time) for kind in kinds]


def _trace(kind: str, marks: list[Mark], against_time: bool) -> dict[str, Any]:
    colour, symbol = _STYLES.get(kind, ("#7f7f7f", "circle"))
    xs: list[float | None] = []
    ys: list[float | None] = []
    texts: list[str] = []
    for mark in marks[:MAX_MARKS]:
        x = round(mark.elapsed_s, 2) if against_time else mark.step
        xs += [x] if kind == _QUIET else [x, x, None]
        ys += [0.03] if kind == _QUIET else [0.03, 1.0, None]
        texts += [label(mark.text)] * (1 if kind == _QUIET else 3)
    return {
        "type": "scatter",
        "mode": "markers" if kind == _QUIET else "lines+markers",
        "name": f"{label(kind.replace('_', ' '), 24)} ({len(marks)})",
        "x": xs,
        "y": ys,
        "text": texts,
        "hoverinfo": "text",
        "yaxis": "y2",
        "line": {"color": colour, "width": 1.5, "dash": "dot"},
        "marker": {"color": colour, "symbol": symbol, "size": 8},
        "cliponaxis": False,
    }

"""The frontier bench's rows as one table per task, from many bits to few."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainingkit.bench.result import Result
from trainingkit.report.tables import Table

Row = Mapping[str, Any]
MEASURED = ("bits", "carried bits", "fp32 / bits", "by seed", "gap", "90 % interval")
COLUMNS = ("scheme", "side", *MEASURED, "frontier", "codec")
NOT_IN_PACKAGE = "-"
CAPTION = (
    "The codec is named where the row ran through the package's own code; a normalised row is that codec with "
    "`sync.normalise`. A preset is after a published setting, with differences."
)


def rows_by_task(result: Result) -> dict[str, list[Row]]:
    """The rows of each task, in the result's order."""
    found: dict[str, list[Row]] = {}
    for row in result.rows:
        found.setdefault(row["task"], []).append(row)
    return found


def task_title(result: Result, task: str) -> str:
    """'decoder: byte decoder on text'."""
    title = result.facts.get(task, {}).get("title")
    return f"{task}: {title}" if title else task


def frontier_tables(result: Result) -> list[Table]:
    """One table per task."""
    return [_table(task_title(result, task), rows) for task, rows in rows_by_task(result).items()]


def _table(title: str, rows: Sequence[Row]) -> Table:
    unit = rows[0]["unit"]
    metric = "validation loss, nats" if rows[0]["metric"] == "loss" else "accuracy, points"
    note = f"By seed: {metric}. The gap is in {unit}; smaller is better. {CAPTION}"
    return Table(title, COLUMNS, tuple(_cells(row) for row in rows), note)


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row["label"] + (" (preset)" if row["preset"] else ""),
        row["side"],
        f"{row['bits']:.3g}",
        f"{row['carried_bits']:.3g}",
        f"{row['ratio']:.3g}",
        ", ".join(_value(row["metric"], value) for value in row["values"]),
        "-" if row["gap"] is None else f"{row['gap']:.2f}",
        "-" if row["gap_low"] is None else f"{row['gap_low']:.2f} to {row['gap_high']:.2f}",
        "yes" if row["on_frontier"] else "",
        row["spec"] or NOT_IN_PACKAGE,
    )


def _value(metric: str, value: float | None) -> str:
    if value is None:
        return "diverged"
    return f"{value:.4f}" if metric == "loss" else f"{value:.2f}"

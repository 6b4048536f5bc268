"""Which tables the rows of a result become: one, or one per task of a frontier, or per link."""

from __future__ import annotations

from trainingkit.bench.result import Result
from trainingkit.report.benchtables import rows_table
from trainingkit.report.frontiertables import frontier_tables
from trainingkit.report.minutestables import minutes_tables
from trainingkit.report.tables import Table


def has_frontier(result: Result) -> bool:
    """Whether the rows are schemes on tasks."""
    return any("on_frontier" in row for row in result.rows)


def has_minutes(result: Result) -> bool:
    """Whether the rows are contenders on links, with minutes until a loss."""
    return any("steps_to_loss" in row for row in result.rows)


def row_tables(result: Result) -> list[Table]:
    """All tables of the rows."""
    if has_minutes(result):
        return minutes_tables(result)
    return frontier_tables(result) if has_frontier(result) else [rows_table(result)]

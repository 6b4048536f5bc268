"""The picture files that a Markdown page of results stands beside."""

from __future__ import annotations

from collections.abc import Sequence

from trainingkit.bench.result import Result
from trainingkit.report.benchrows import has_frontier
from trainingkit.report.figures.frontiersvg import frontier_svg
from trainingkit.report.frontiertables import rows_by_task, task_title


def picture_name(task: str, number: int) -> str:
    """File name of a task's picture, of the result with that 0-based number on the page."""
    return f"frontier-{task}.svg" if number == 0 else f"frontier-{task}-{number + 1}.svg"


def pictures(results: Sequence[Result]) -> dict[str, str]:
    """File name -> SVG, for all results that have pictures."""
    return {
        picture_name(task, number): frontier_svg(task_title(result, task), rows)
        for number, result in enumerate(results)
        if has_frontier(result)
        for task, rows in rows_by_task(result).items()
    }

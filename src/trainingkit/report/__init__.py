"""What should the person see? One self-contained HTML page per run, and its parts: numbers, sentences, figures.

`write(run)` makes the page; `read_run`, `steptable.build`, `summary`, `sentences` and `figures` work alone.
"""

from trainingkit.report.page import render
from trainingkit.report.rundata import RankData, RunData, read_run
from trainingkit.report.steptable import StepTable
from trainingkit.report.write_page import write

__all__ = ["RankData", "RunData", "StepTable", "read_run", "render", "write"]

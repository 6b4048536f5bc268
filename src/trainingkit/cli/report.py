"""`trainingkit report`: the page of a run."""

from __future__ import annotations

import sys
from pathlib import Path


def report(run: Path, *, output: Path | None = None) -> None:
    """Make the page of a run: one HTML file that opens without a network.

    It says whether the loss fell, where the time went, which rank was slowest and what was run. A run that
    still goes on, failed, or lost some of its files gets a page too; what is missing is named on it.

    Example: trainingkit report runs/stdlib-20261130-120000

    Args:
        run: the run folder.
        output: where to write the page; report.html in the run folder when not given.
    """
    from trainingkit.cli.finding import run_folder
    from trainingkit.report import write

    page = write(run_folder(run), output)
    sys.stdout.write(f"The page is {page}\n")

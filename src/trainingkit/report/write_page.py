"""From a run folder to its page on disk."""

from __future__ import annotations

import shlex
from pathlib import Path

from trainingkit.core.errors import RunFolderError
from trainingkit.core.files import write_atomic
from trainingkit.core.runfolder import RunFolder
from trainingkit.report.page import render
from trainingkit.report.rundata import read_run


def write(run: RunFolder, output: Path | None = None) -> Path:
    """Make the page of a run and return where it is: `output`, or `report.html` in the run folder.

    Raises:
        RunFolderError: the file cannot be written; an earlier page stays as it was.
    """
    path = run.report if output is None else Path(output)
    content = render(read_run(run))
    try:
        write_atomic(path, content)
    except OSError as error:
        raise RunFolderError(
            f"The page cannot be written: {error.strerror}.",
            field="output" if output is not None else "run.folder",
            found=str(path),
            expected="a file name in a folder that can be written",
            next_step=_elsewhere(run, output),
        ) from error
    return path


def _elsewhere(run: RunFolder, output: Path | None) -> str:
    """What to do where the page cannot be written; a page that nobody named a file for comes from training."""
    if output is not None:
        return "Choose another file with --output FILE.html."
    folder = shlex.quote(str(run.root))
    return f"Mend that, or write it elsewhere: trainingkit report {folder} --output FILE.html"

"""Log files: one per rank. The console belongs to rank 0's progress and to errors."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

LOG = logging.getLogger("trainingkit")
FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def to_file(path: Path) -> Callable[[], None]:
    """Send all log records of this process to `path`, too. Returns what undoes it.

    Lines that cannot be written (a full disk) are told on stderr by `logging` itself; they stop nothing.
    """
    handler = logging.FileHandler(path, mode="a", encoding="utf-8")
    handler.setFormatter(logging.Formatter(FORMAT))
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    logging.captureWarnings(True)

    def undo() -> None:
        logging.captureWarnings(False)
        root.removeHandler(handler)
        root.setLevel(level)
        with contextlib.suppress(OSError):
            handler.close()

    return undo


def capture_output(path: Path, *, keep_stdout: bool) -> None:
    """Send this process's stderr to `path`, native output included, and its stdout too unless `keep_stdout`."""
    sys.stdout.flush()
    sys.stderr.flush()
    with open(path, "ab") as handle:
        os.dup2(handle.fileno(), 2)
        if not keep_stdout:
            os.dup2(handle.fileno(), 1)

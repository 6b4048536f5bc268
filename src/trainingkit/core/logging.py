"""Log files: one per rank. The console belongs to rank 0's progress and to errors."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

LOG = logging.getLogger("trainingkit")
FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def to_file(path: Path, *, own_output: bool) -> None:
    """Send all log records of this process to `path`.

    Args:
        own_output: also send this process's stdout and stderr there (every rank but 0), native output included.
    """
    handler = logging.FileHandler(path, mode="a", encoding="utf-8")
    handler.setFormatter(logging.Formatter(FORMAT))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    logging.captureWarnings(True)
    if own_output:
        sys.stdout.flush()
        sys.stderr.flush()
        for descriptor in (1, 2):
            os.dup2(handler.stream.fileno(), descriptor)

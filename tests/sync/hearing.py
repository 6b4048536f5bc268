"""What the package's log says while a test does something."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def hearing() -> Iterator[list[str]]:
    """Warnings and errors, as they come."""
    heard: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: heard.append(record.getMessage())
    logging.getLogger("trainingkit").addHandler(handler)
    yield heard
    logging.getLogger("trainingkit").removeHandler(handler)

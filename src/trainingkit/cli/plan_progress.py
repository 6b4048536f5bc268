"""How far a search or a scoring is: nothing for the first second, then a bar on a terminal, or one plain line."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

PATIENCE_S = 1.0


@contextlib.contextmanager
def shares(what: str) -> Iterator[Callable[[float], None]]:
    """The function to tell the done share to; writes to stderr."""
    begun = time.monotonic()
    shown = False
    bar = sys.stderr.isatty()

    def show(done: float) -> None:
        nonlocal shown
        if time.monotonic() - begun < PATIENCE_S or (shown and not bar):
            return
        shown = True
        filled = round(24 * min(1.0, done))
        line = f"{what} [{'#' * filled}{'.' * (24 - filled)}] {min(1.0, done):.0%}"
        sys.stderr.write(f"\r{line}" if bar else f"{what} ...\n")
        sys.stderr.flush()

    try:
        yield show
    finally:
        if shown and bar:
            sys.stderr.write("\r" + " " * (len(what) + 34) + "\r")

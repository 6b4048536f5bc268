"""How far a bench is: a bar on a terminal, elsewhere a plain line every few seconds, on stderr in both cases."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from trainingkit.core.units import format_seconds

if TYPE_CHECKING:
    from trainingkit.bench.network.run import Glance

LINE_EVERY_S = 10.0


@contextlib.contextmanager
def progress() -> Iterator[Callable[[Glance], None]]:
    """The function to show glances with, for this output."""
    if not sys.stderr.isatty():
        yield _Lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("[bold]{task.description}"), BarColumn(bar_width=24), TextColumn("{task.fields[text]}"))
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task("start", total=1.0, text="")

        def show(glance: Glance) -> None:
            done = {} if glance.done is None else {"completed": min(1.0, glance.done), "text": glance_text(glance)}
            bar.update(task, description=glance.part, **done)

        yield show


def glance_text(glance: Glance) -> str:
    """'45 %, about 1 min 20 s left, rounds 7, kept share 0.981'."""
    parts = [] if glance.done is None else [f"{min(1.0, glance.done):.0%}"]
    parts += [f"about {format_seconds(glance.left_s)} left"] if glance.left_s and glance.left_s >= 1 else []
    parts += [glance.text or glance.contender]
    return ", ".join(part for part in parts if part)


class _Lines:
    """A line when a part begins, and then one every `LINE_EVERY_S`."""

    def __init__(self) -> None:
        self._part = ""
        self._last_s = 0.0

    def __call__(self, glance: Glance) -> None:
        now = time.monotonic()
        if glance.part == self._part and (glance.done is None or now - self._last_s < LINE_EVERY_S):
            return
        self._part, self._last_s = glance.part, now
        sys.stderr.write(f"{glance.part}: {glance_text(glance)}\n")
        sys.stderr.flush()

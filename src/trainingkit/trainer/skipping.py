"""Batches that a run leaves out after it was set back, so that the data behind a spike is not seen again.

    skips.json     [[first, last], ...]: the batches that steps `first` to `last` would take are drawn and dropped

They are dropped just before step `first` begins, whenever a run gets there: a run that is resumed before it drops them
again, one that is resumed after it does not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from trainingkit.core.errors import RunFolderError
from trainingkit.core.files import write_atomic
from trainingkit.core.runfolder import RunFolder

Span = tuple[int, int]


def read_skips(run: RunFolder) -> list[Span]:
    """The spans of steps whose batches are left out, in order.

    Raises:
        RunFolderError: the file is not what `write_skips` left.
    """
    if not run.skips.exists():
        return []
    try:
        return sorted((int(first), int(last)) for first, last in json.loads(run.skips.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise RunFolderError(
            f"The list of batches to leave out cannot be read: {error}.",
            field="skips.json",
            found=str(run.skips),
            expected="a list of pairs of steps",
            next_step="Write it anew with `trainingkit recover RUN --to-step N --skip-batches A..B`, or remove it.",
        ) from error


def write_skips(run: RunFolder, spans: Iterable[Span]) -> None:
    """Replace the list; a span that is named twice counts once. Raises OSError."""
    write_atomic(run.skips, json.dumps(sorted(set(spans))) + "\n")


class Skipping:
    """Drops batches between two steps of one loop.

    Args:
        spans: as `read_skips` gives them.
        accumulate: batches per step.
        before: the step that the next batch begins, or None inside a step.
        say: told (event, text) when batches are dropped.
    """

    def __init__(
        self,
        spans: Iterable[Span],
        *,
        accumulate: int,
        before: Callable[[], int | None],
        say: Callable[[str, str], None],
    ) -> None:
        self._spans = list(spans)
        self._accumulate = accumulate
        self._before = before
        self._say = say

    def walk(self, batches: Iterator[Any]) -> Iterator[Any]:
        """The same batches without those that are left out."""
        while True:
            for _ in range(self._due()):
                next(batches, None)
            try:
                batch = next(batches)
            except StopIteration:
                return
            yield batch

    def _due(self) -> int:
        step = self._before()
        due = [span for span in self._spans if span[0] == step]
        for first, last in due:
            self._spans.remove((first, last))
            self._say(
                "skip", f"The batches of steps {first} to {last} are left out, as asked when the run was set back."
            )
        return sum(last - first + 1 for first, last in due) * self._accumulate

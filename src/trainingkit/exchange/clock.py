"""When the stages of a step ran, so that what was hidden behind backward can be told from what was not."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence

KINDS = ("encode", "decode", "wire")
"""What a stage can be. "wire" is waiting for messages; where kinds coincide, the first of them counts as exposed."""

Interval = tuple[float, float]


class StageClock:
    """Intervals by kind, from several threads, since the last `reset`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._intervals: dict[str, list[Interval]] = {kind: [] for kind in KINDS}

    @contextlib.contextmanager
    def stage(self, kind: str) -> Iterator[None]:
        """Time a block."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.add(kind, begin, time.perf_counter())

    def add(self, kind: str, begin_s: float, end_s: float) -> None:
        """Note an interval (`time.perf_counter`)."""
        with self._lock:
            self._intervals[kind].append((begin_s, end_s))

    def split(self, at_s: float) -> tuple[dict[str, float], dict[str, float]]:
        """Seconds by kind before and after a moment (`time.perf_counter`): hidden behind the step, and not.

        Threads that do the same at the same time count once. Hidden: all the seconds in which a kind ran. Exposed:
        each second belongs to one kind only, so that the sum is at most what the step really waited.
        """
        with self._lock:
            found = {kind: list(intervals) for kind, intervals in self._intervals.items()}
        hidden = {kind: _covered([(b, min(e, at_s)) for b, e in pairs]) for kind, pairs in found.items()}
        exposed: dict[str, float] = {}
        so_far: list[Interval] = []
        for kind in KINDS:
            before = _covered(so_far)
            so_far += [(max(begin, at_s), end) for begin, end in found[kind]]
            exposed[kind] = _covered(so_far) - before
        return hidden, exposed

    def reset(self) -> None:
        """Forget the intervals: a step starts."""
        with self._lock:
            self._intervals = {kind: [] for kind in KINDS}


def _covered(intervals: Sequence[Interval]) -> float:
    """Length of the union; an interval that ends before it begins is empty."""
    total = 0.0
    reached = float("-inf")
    for begin, end in sorted(intervals):
        if end > begin and end > reached:
            total += end - max(begin, reached)
            reached = end
    return total

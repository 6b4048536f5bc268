"""When the stages of a step ran, so that what was hidden behind backward can be told from what was not."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator


class StageClock:
    """Intervals by kind ("encode", "wire", "decode"), from several threads, since the last `reset`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._intervals: list[tuple[str, float, float]] = []

    @contextlib.contextmanager
    def stage(self, kind: str) -> Iterator[None]:
        """Time a block."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            with self._lock:
                self._intervals.append((kind, begin, time.perf_counter()))

    def split(self, at_s: float) -> tuple[dict[str, float], dict[str, float]]:
        """Seconds by kind before and after a moment (`time.perf_counter`): hidden behind the step, and not."""
        before: dict[str, float] = {}
        after: dict[str, float] = {}
        with self._lock:
            for kind, begin, end in self._intervals:
                before[kind] = before.get(kind, 0.0) + max(0.0, min(end, at_s) - begin)
                after[kind] = after.get(kind, 0.0) + max(0.0, end - max(begin, at_s))
        return before, after

    def reset(self) -> None:
        """Forget the intervals: a step starts."""
        with self._lock:
            self._intervals = []

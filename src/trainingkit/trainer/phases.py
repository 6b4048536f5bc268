"""Where a step's time goes: exclusive seconds of the step's own thread, by phase."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import torch
from torch import nn

from trainingkit.core.records import PHASES


class PhaseClock:
    """Times named phases within a step; what no phase claims is `other`.

    A step lasts from the end of the one before to its own end, less what was excluded (evaluation).
    """

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._start = time.perf_counter()

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a block as `name` (one of PHASES)."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.add(name, time.perf_counter() - begin)

    @contextlib.contextmanager
    def excluded(self) -> Iterator[None]:
        """Time that belongs to no step."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self._start += time.perf_counter() - begin

    def add(self, name: str, seconds: float) -> None:
        """Add seconds to a phase."""
        assert name in PHASES, name
        self._seconds[name] = self._seconds.get(name, 0.0) + seconds

    def move(self, source: str, target: str, seconds: float) -> None:
        """Say that some of `source`'s seconds were really `target`; at most what `source` has."""
        moved = min(seconds, self._seconds.get(source, 0.0))
        self.add(source, -moved)
        self.add(target, moved)

    def restart(self) -> None:
        """A step starts now; what was timed before is dropped."""
        self._seconds = {}
        self._start = time.perf_counter()

    def lap(self) -> tuple[float, dict[str, float]]:
        """End the step: its seconds, and its phases including `other`. The next step starts here."""
        now = time.perf_counter()
        total = now - self._start
        phases = dict(self._seconds)
        phases["other"] = phases.get("other", 0.0) + max(0.0, total - sum(phases.values()))
        self._seconds = {}
        self._start = now
        return total, phases


class GradientClock:
    """Notes when this rank's own last gradient was ready, so that waiting for peers can be told from computing.

    An all-reduce makes all ranks equally late; only the moment before it shows who was slow (traceml issue 252).
    """

    def __init__(self, model: nn.Module) -> None:
        self.ready_s = 0.0
        self._handles = [
            p.register_post_accumulate_grad_hook(self._note) for p in model.parameters() if p.requires_grad
        ]

    def _note(self, _parameter: torch.Tensor) -> None:
        self.ready_s = time.perf_counter()

    def close(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()

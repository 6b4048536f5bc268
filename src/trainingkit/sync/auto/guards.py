"""Is the rung still good for the training? Loss spikes and messages that say too little send it a rung back.

A spike is a loss far outside of its recent course: above mean + 6 deviations, and above 1.1 times the mean, both by
moving averages over about 50 steps. A message says too little when the cosine between what it was to say and what it
says stays below 0.3.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from trainingkit.sync.auto.seen import UNKNOWN, Seen

DEVIATIONS = 6.0
RISE = 1.1
DECAY = 0.98
LEAST_STEPS = 20
LEAST_COSINE = 0.3
LEAST_LOW = 3


@dataclass
class Guards:
    """Moving averages over committed steps; the same on all ranks, since they are fed what is agreed."""

    mean: float = 0.0
    square: float = 0.0
    steps: int = 0
    low: int = 0

    def complaint(self, seen: Seen) -> str | None:
        """What is wrong with this step, as a clause; None where nothing is. Learns from the step."""
        return self._spike(seen) or self._faint(seen)

    def state_dict(self) -> dict[str, Any]:
        """JSON."""
        return asdict(self)

    def _spike(self, seen: Seen) -> str | None:
        if seen.loss == UNKNOWN or not math.isfinite(seen.loss):
            return None
        deviation = math.sqrt(max(0.0, self.square - self.mean * self.mean))
        limit = max(self.mean + DEVIATIONS * deviation, RISE * self.mean)
        if self.steps >= LEAST_STEPS and seen.loss > limit:
            return f"the loss jumped to {seen.loss:.4g}, where {self.mean:.4g} was usual"
        share = max(1.0 - DECAY, 1.0 / (self.steps + 1))
        self.mean += share * (seen.loss - self.mean)
        self.square += share * (seen.loss * seen.loss - self.square)
        self.steps += 1
        return None

    def _faint(self, seen: Seen) -> str | None:
        if seen.cosine == UNKNOWN:
            return None
        self.low = self.low + 1 if seen.cosine < LEAST_COSINE else 0
        if self.low < LEAST_LOW:
            return None
        self.low = 0
        return f"messages point away from what they were to say (cosine {seen.cosine:.2f}, energy kept {seen.kept:.2f})"

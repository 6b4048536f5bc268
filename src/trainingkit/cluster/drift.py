"""Have the exchange times drifted so far that the network must be looked at again? Pure, with hysteresis.

The median of the last `window` times is compared with that of the first `window` after the last alarm. Once it is
`factor` times longer or shorter for `patience` times in a row there is one alarm; then a new reference is taken, so
that a network which has settled at another speed raises no second one.
"""

from __future__ import annotations

import statistics
from collections import deque
from dataclasses import dataclass, field
from typing import Any

WINDOW = 8
PATIENCE = 12


@dataclass
class Drift:
    """Fed with seconds that all ranks agreed on, it says the same on all ranks.

    Args:
        factor: how far is too far.
        window: times whose median counts; single outliers move nothing.
        patience: how many medians in a row must be too far; with the defaults, bursts of ten are no drift.
    """

    factor: float = 2.0
    window: int = WINDOW
    patience: int = PATIENCE
    _reference_s: float | None = None
    _recent: deque[float] = field(default_factory=deque)
    _far: int = 0

    def see(self, seconds: float) -> bool:
        """Take one exchange's time. True: it has drifted, look at the network again."""
        self._recent.append(seconds)
        if len(self._recent) < self.window:
            return False
        while len(self._recent) > self.window:
            self._recent.popleft()
        median_s = statistics.median(self._recent)
        if self._reference_s is None:
            self._reference_s = median_s
            return False
        low, high = self._reference_s / self.factor, self._reference_s * self.factor
        self._far = 0 if low < median_s < high else self._far + 1
        if self._far < self.patience:
            return False
        self.forget()
        return True

    def forget(self) -> None:
        """Take a new reference from the next times: the exchange, its codec or the network has been changed."""
        self._reference_s, self._far = None, 0
        self._recent.clear()

    def state_dict(self) -> dict[str, Any]:
        """JSON."""
        return {"reference_s": self._reference_s, "recent": list(self._recent), "far": self._far}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on there."""
        self._reference_s, self._far = state["reference_s"], state["far"]
        self._recent = deque(state["recent"])

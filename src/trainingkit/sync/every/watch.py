"""The steps of a script's own loop, which calls neither `commit` nor `abort`: its optimizer's, or its scaler's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.optim import Optimizer


class StepWatch:
    """Tells when a step is over.

    Without a GradScaler that is when `optimizer.step` returns. A GradScaler leaves `optimizer.step` out where a
    gradient overflowed, on that rank alone; with one, a step is over when `scaler.update` returns, which always comes.

    Args:
        taken: called after a step of the optimizer.
        skipped: called after a step that the scaler left out.
    """

    def __init__(self, optimizer: Optimizer, *, taken: Callable[[], object], skipped: Callable[[], object]) -> None:
        self.scaler: Any = None
        self._taken = taken
        self._skipped = skipped
        self._stepped = False
        optimizer.register_step_post_hook(self._after_step)

    def follow(self, scaler: Any) -> None:
        """From now on a step is over when this scaler is updated; None: when the optimizer has stepped."""
        if self.scaler is not None:
            del self.scaler.update
        self.scaler = scaler
        if scaler is None:
            return
        update = scaler.update

        def updated(*args: Any, **named: Any) -> None:
            update(*args, **named)
            stepped, self._stepped = self._stepped, False
            _ = self._taken() if stepped else self._skipped()

        scaler.update = updated

    def _after_step(self, *_: Any) -> None:
        if self.scaler is None:
            self._taken()
        else:
            self._stepped = True

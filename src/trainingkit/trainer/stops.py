"""Requests to stop: SIGTERM and SIGINT set a flag that the loop reads; a second SIGINT ends at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """Catches the signals while installed. Only the main thread may install it; elsewhere it stays a plain flag."""

    def __init__(self) -> None:
        self.requested: str | None = None
        self._before: dict[int, Any] = {}

    def install(self) -> None:
        """Take over the signals."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in SIGNALS:
            self._before[number] = signal.signal(number, self._on_signal)

    def restore(self) -> None:
        """Give the signals back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.requested == signal.Signals.SIGINT.name:
            raise KeyboardInterrupt
        self.requested = signal.Signals(number).name

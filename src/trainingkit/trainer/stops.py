"""Requests to stop: a signal, or a file in the run folder, that the loop sees when it is asked; a second SIGINT ends at
once.

SIGTERM is what schedulers send before they take a machine away, SIGUSR1 what `sbatch --signal=USR1@120` asks for.
"""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
LOOK_S = 0.25
"""Seconds between two looks for the file: a shared file system answers slowly."""
BY_FILE = "the file stop"


class StopRequest:
    """Catches the signals while installed. Only the main thread may install it; elsewhere it stays a plain flag.

    Args:
        file: whose being there is a request, too.

    Attributes:
        requested: who asked for it: the name of a signal, or `BY_FILE`.
    """

    def __init__(self, file: Path | None = None) -> None:
        self.requested: str | None = None
        self._file = file
        self._looked_s = -LOOK_S
        self._before: dict[int, Any] = {}

    def install(self) -> None:
        """Take over the signals."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in SIGNALS:
            self._before[number] = signal.signal(number, self._on_signal)

    def asked(self) -> bool:
        """Whether a stop was requested by now."""
        if self.requested is None and self._file is not None and time.monotonic() - self._looked_s >= LOOK_S:
            self._looked_s = time.monotonic()
            if self._file.exists():
                self.requested = BY_FILE
        return self.requested is not None

    def restore(self) -> None:
        """Give the signals back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.requested == signal.Signals.SIGINT.name:
            raise KeyboardInterrupt
        self.requested = signal.Signals(number).name

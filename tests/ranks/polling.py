"""Waiting in tests: poll a condition until a deadline, never a fixed sleep."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(condition: Callable[[], T], *, deadline_s: float, what: str, every_s: float = 0.01) -> T:
    """The first truthy value of `condition()`.

    Raises:
        TimeoutError: it stayed falsy for `deadline_s`; the message says `what` was awaited.
    """
    pause = threading.Event()
    end = time.monotonic() + deadline_s
    while not (value := condition()):
        if time.monotonic() > end:
            raise TimeoutError(f"waited {deadline_s:g} s in vain for: {what}")
        pause.wait(every_s)
    return value

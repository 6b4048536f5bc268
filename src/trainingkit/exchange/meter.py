"""What the wire did in a step: when each collective was under way, and how many bytes of it left this rank."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

import torch.distributed as dist


class Transfer(NamedTuple):
    """One collective: `time.perf_counter` of its start and its end here, and the bytes that this rank sent."""

    begin_s: float
    end_s: float
    sent_bytes: int


class WireMeter:
    """Collects the transfers of a step; ends are noted on the backend's threads, which issue nothing.

    Args:
        active: False where nobody asks, so that nothing is noted.
    """

    def __init__(self, *, active: bool = True) -> None:
        self._active = active
        self._lock = threading.Lock()
        self._transfers: list[Transfer] = []

    def watch(self, work: dist.Work, sent_bytes: int) -> None:
        """Note a collective that has just been started; its end is noted when it comes."""
        if not self._active:
            return
        end = self._started(sent_bytes)
        work.get_future().add_done_callback(lambda _future: end())

    def _started(self, sent_bytes: int) -> Callable[[], None]:
        begin_s = time.perf_counter()

        def end() -> None:
            with self._lock:
                self._transfers.append(Transfer(begin_s, time.perf_counter(), sent_bytes))

        return end

    def take(self) -> list[Transfer]:
        """What has ended since the last call, in order of its start."""
        with self._lock:
            taken, self._transfers = self._transfers, []
        return sorted(taken)

"""What the wire did in a step: when each collective was under way, and how many bytes of it left this rank."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import NamedTuple

import torch.distributed as dist


class Transfer(NamedTuple):
    """One collective: `time.perf_counter` of its start and its end here, and the bytes that this rank sent."""

    begin_s: float
    end_s: float
    sent_bytes: int


@dataclass(frozen=True, eq=False)
class _Pending:
    work: dist.Work
    begin_s: float
    sent_bytes: int


class WireMeter:
    """Collects the transfers of a step; ends are noted on the backend's threads, which issue nothing.

    Args:
        active: False where nobody asks, so that nothing is noted.
    """

    def __init__(self, *, active: bool = True) -> None:
        self._active = active
        self._lock = threading.Lock()
        self._pending: list[_Pending] = []
        self._transfers: list[Transfer] = []

    def watch(self, work: dist.Work, sent_bytes: int) -> None:
        """Note a collective that has just been started; its end is noted when it comes."""
        if not self._active:
            return
        pending = _Pending(work, time.perf_counter(), sent_bytes)
        with self._lock:
            self._pending.append(pending)
        work.get_future().add_done_callback(lambda _future: self._ended(pending))

    def take(self) -> list[Transfer]:
        """What has ended since the last call, in order of its start.

        A collective that was waited for is among it, though the backend's thread may not have told of its end yet.
        """
        with self._lock:
            pending = list(self._pending)
        for each in pending:
            if each.work.is_completed():
                self._ended(each)
        with self._lock:
            taken, self._transfers = self._transfers, []
        return sorted(taken)

    def _ended(self, pending: _Pending) -> None:
        now_s = time.perf_counter()
        with self._lock:
            if pending in self._pending:
                self._pending.remove(pending)
                self._transfers.append(Transfer(pending.begin_s, now_s, pending.sent_bytes))

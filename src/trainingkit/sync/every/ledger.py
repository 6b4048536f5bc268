"""What steps cost while rounds come and go: seconds waited, bytes sent, and what a person should be told."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from trainingkit.core.logging import LOG
from trainingkit.sync.contract import SyncStats
from trainingkit.sync.every.parcel import Wire


class Ledger:
    """Notes from one step's end to the next.

    Args:
        wire: None with one rank, which sends nothing.
    """

    def __init__(self, wire: Wire | None) -> None:
        self._wire = wire
        self._waits: list[tuple[float, float]] = []
        self._events: list[str] = []
        self._counted_bytes = 0

    @property
    def sent_bytes(self) -> int:
        """Of this rank, so far."""
        return sum(lane.sent_bytes for lane in self._wire.lanes) if self._wire is not None else 0

    def restart(self) -> None:
        """What the wire has done so far was not for rounds of these."""
        self._waits, self._counted_bytes = [], self.sent_bytes
        if self._wire is not None:
            self._wire.clock.reset()

    def say(self, text: str) -> None:
        """A sentence for the step's events, and for the log: a script of one's own looks at nothing else."""
        LOG.warning("%s", text)
        self._events.append(text)

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """The training thread waits for the wire."""
        begin = time.perf_counter()
        yield
        self._waits.append((begin, time.perf_counter()))

    def close_step(self, *, alone: bool) -> SyncStats:
        """What it was since the last call; encoding and decoding before the first wait were hidden behind training."""
        waits, self._waits = self._waits, []
        events, self._events = tuple(self._events), []
        total = self.sent_bytes
        sent, self._counted_bytes = total - self._counted_bytes, total
        waited_s = sum(end - begin for begin, end in waits)
        if self._wire is None:
            return SyncStats(waited_s=waited_s, alone=alone, events=events)
        hidden, exposed = self._wire.clock.split(waits[0][0] if waits else time.perf_counter())
        self._wire.clock.reset()
        exposed.pop("wire")
        return SyncStats(sent, hidden, exposed, waited_s=waited_s, alone=alone, events=events)

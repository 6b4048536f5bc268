"""Writing one rank's journal off the step's path: records wait in a bounded queue, a thread appends them.

A record is handed to the kernel as soon as the thread gets to it, so it outlives the process; how much a dead host may
lose is the fsync interval. A disk that is full, or any other failure, ends the segment: training goes on, and the next
segment, begun with the next snapshot, tries again.
"""

from __future__ import annotations

import collections
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

from trainingkit.core.files import fsync_folder
from trainingkit.core.logging import LOG
from trainingkit.recovery.journal import frames, segments
from trainingkit.recovery.journal.frames import Bytes
from trainingkit.recovery.journal.segments import Origin

QUEUE_STEPS = 64
"""Records that may wait at most, however small: so many steps a living writer can be behind (see `cover.LAG_STEPS`)."""


@dataclass(frozen=True)
class _Record:
    step: int
    parts: list[Bytes]
    size: int


@dataclass(frozen=True)
class _Begin:
    origin: Origin
    oldest_step: int
    size: int = 0


class JournalWriter:
    """Appends records to segments of its own thread's.

    Args:
        journal: the run's journal folder.
        fsync_s: seconds after which what was written is made durable; 0: after every record.
        queue_bytes: how much may wait, in at most `QUEUE_STEPS` records. A record that finds the queue full waits, and
            so does the step.

    Attributes:
        written_bytes: handed to the kernel so far.
        waited_s: seconds that steps waited for the queue.
    """

    def __init__(self, journal: Path, *, fsync_s: float, queue_bytes: int) -> None:
        self.written_bytes = 0
        self.waited_s = 0.0
        self._journal = journal
        self._fsync_s = fsync_s
        self._queue_bytes = queue_bytes
        self._queue: collections.deque[_Record | _Begin | None] = collections.deque()
        self._waiting_bytes = 0
        self._waiting = 0
        self._begun = 0
        self._change = threading.Condition()
        self._problems: list[str] = []
        self._handle: FileIO | None = None
        self._synced_at = 0.0
        self._unsynced = False
        self._thread = threading.Thread(target=self._work, name="journal-writer", daemon=True)
        self._thread.start()

    def begin(self, origin: Origin, *, oldest_step: int) -> None:
        """End the segment and begin another. Segments that no snapshot needs any more are removed.

        The first one is there, or is known to have failed, when this returns: a rank without a file has lost it.

        Args:
            oldest_step: of the snapshots that are kept.
        """
        self._put(_Begin(origin, oldest_step))
        with self._change:
            while not self._begun:
                self._change.wait()

    def append(self, step: int, head: Mapping[str, Any], blobs: Mapping[str, Bytes]) -> int:
        """Hand over one step's record; the blobs must not change any more. Returns its bytes.

        Raises:
            CheckpointError: something in the head has no JSON form.
        """
        parts = frames.pack(step, head, blobs)
        size = sum(len(part) for part in parts)
        self._put(_Record(step, parts, size))
        return size

    def problems(self) -> list[str]:
        """What went wrong since the last call, for people."""
        with self._change:
            found, self._problems = self._problems, []
        return found

    def close(self) -> None:
        """Write and fsync what waits, and end the thread. Safe to call twice."""
        if self._thread.is_alive():
            self._put(None)
            self._thread.join()

    def _put(self, item: _Record | _Begin | None) -> None:
        size = item.size if isinstance(item, _Record) else 0
        began = time.perf_counter()
        with self._change:
            while size and self._is_full(size):
                self._change.wait()
            self._queue.append(item)
            self._waiting_bytes += size
            self._waiting += 1 if size else 0
            self._change.notify_all()
        if size:
            self.waited_s += time.perf_counter() - began

    def _is_full(self, size: int) -> bool:
        too_large = self._waiting > 0 and self._waiting_bytes + size > self._queue_bytes
        return too_large or self._waiting >= QUEUE_STEPS

    def _work(self) -> None:
        while True:
            with self._change:
                while not self._queue and self._change.wait(self._patience()):
                    pass
                item = self._queue.popleft() if self._queue else _NOTHING
            if item is None:
                self._guarded(self._end, "ended")
                return
            if isinstance(item, _Record):
                self._guarded(lambda record=item: self._write(record), f"written at step {item.step}")
                with self._change:
                    self._waiting_bytes -= item.size
                    self._waiting -= 1
                    self._change.notify_all()
            elif isinstance(item, _Begin):
                self._guarded(lambda begin=item: self._begin(begin), f"begun after step {item.origin.base_step}")
                with self._change:
                    self._begun += 1
                    self._change.notify_all()
            self._guarded(self._sync_if_due, "made durable")

    def _patience(self) -> float | None:
        """Seconds until what was written is due to be made durable; None where nothing waits for it."""
        return max(0.0, self._synced_at + self._fsync_s - time.monotonic()) if self._unsynced else None

    def _guarded(self, action: Any, doing: str) -> None:
        try:
            action()
        except Exception as error:
            self._handle, handle = None, self._handle
            self._unsynced = False
            if handle is not None:
                _close_quietly(handle)
            text = (
                f"The journal could not be {doing}: {_reason(error)}. Training goes on without it until the "
                "next snapshot; steps from here to there would be lost."
            )
            LOG.warning("%s", text)
            with self._change:
                self._problems.append(text)

    def _begin(self, begin: _Begin) -> None:
        self._end()
        path = segments.segment_path(self._journal, begin.origin)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._handle = FileIO(path, "xb")
        self.written_bytes += frames.write(self._handle, segments.opening(begin.origin))
        self._sync()
        fsync_folder(path.parent)
        _remove(unneeded(self._journal, begin.origin, oldest_step=begin.oldest_step))

    def _write(self, record: _Record) -> None:
        if self._handle is not None:
            self.written_bytes += frames.write(self._handle, record.parts)
            self._unsynced = True

    def _sync_if_due(self) -> None:
        if self._unsynced and time.monotonic() >= self._synced_at + self._fsync_s:
            self._sync()

    def _sync(self) -> None:
        if self._handle is not None:
            os.fsync(self._handle.fileno())
        self._unsynced = False
        self._synced_at = time.monotonic()

    def _end(self) -> None:
        if self._handle is not None:
            self._sync()
            self._handle.close()
        self._handle = None


_NOTHING = object()


def unneeded(journal: Path, origin: Origin, *, oldest_step: int) -> list[segments.Slot]:
    """Segments of this rank that none of the kept snapshots leads into; of a rank that is no more, its heir's, too.

    Of the present attempt those that another of its segments follows at a step that all snapshots have; of earlier
    attempts those, and all of them once every snapshot is newer than the present attempt's beginning. Until then they
    may hold steps that the present attempt did not replay.
    """
    mine = [slot for slot in segments.slots(journal) if _is_heir(origin, slot.rank)]
    begun = min((s.first_step - 1 for s in mine if (s.rank, s.attempt) == (origin.rank, origin.attempt)), default=0)
    gone: list[segments.Slot] = []
    for slot in mine:
        same = [s for s in mine if (s.rank, s.attempt) == (slot.rank, slot.attempt)]
        after = [s.first_step - 1 for s in same if s.first_step > slot.first_step]
        followed = bool(after) and min(after) <= oldest_step
        left_behind = slot.attempt < origin.attempt and oldest_step > begun
        if followed or left_behind:
            gone.append(slot)
    return gone


def _is_heir(origin: Origin, rank: int) -> bool:
    """Whether a rank's segments are looked after by this one: its own, and its share of those of a larger world."""
    return rank == origin.rank or (rank >= origin.world_size and rank % origin.world_size == origin.rank)


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or f"{type(error).__name__}: {error}"


def _remove(gone: list[segments.Slot]) -> None:
    for slot in gone:
        try:
            slot.path.unlink(missing_ok=True)
        except OSError as error:
            LOG.warning("an old segment of the journal could not be removed: %s", error)


def _close_quietly(handle: FileIO) -> None:
    try:
        handle.close()
    except OSError as error:
        LOG.warning("a segment of the journal could not be closed: %s", error)

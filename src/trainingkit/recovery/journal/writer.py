"""Writing one rank's journal off the step's path: records wait in a bounded queue, a thread appends them.

A record is handed to the kernel as soon as the thread gets to it, so it outlives the process; how much a dead host may
lose is the fsync interval. A disk that is full, or any other failure, ends the segment, with a mark: training goes on,
and the next segment, begun with the next snapshot, tries again.
"""

from __future__ import annotations

import collections
import contextlib
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
from trainingkit.recovery.journal.outdated import remove, unneeded
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
        waited_s: seconds that steps waited for the queue, or for a segment to begin.
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
        self._asked = 0
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

        When this returns, what was appended before is written, and the new file is there and says whose it is; or that
        is known to have failed. No rank takes the next step before: one that has no such file then has lost it
        (`cover`). Nothing here waits until the disk has it.

        Args:
            oldest_step: of the snapshots that are kept.
        """
        self._asked += 1
        self._put(_Begin(origin, oldest_step))
        began = time.perf_counter()
        with self._change:
            while self._begun < self._asked and self._thread.is_alive():
                self._change.wait()
        self.waited_s += time.perf_counter() - began

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
                self._rotate(item)
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
                _end_quietly(handle)
            text = (
                f"The journal could not be {doing}: {_reason(error)}. Training goes on without it until the "
                "next snapshot; steps from here to there would be lost."
            )
            LOG.warning("%s", text)
            with self._change:
                self._problems.append(text)

    def _rotate(self, begin: _Begin) -> None:
        doing = f"begun after step {begin.origin.base_step}"
        self._handle, ended = None, self._handle
        self._guarded(lambda: self._begin(begin.origin), doing)
        with self._change:
            self._begun += 1
            self._change.notify_all()
        if ended is not None:
            _end_quietly(ended)
        self._guarded(lambda: self._settle(begin), doing)

    def _begin(self, origin: Origin) -> None:
        path = segments.segment_path(self._journal, origin)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._handle = FileIO(path, "xb")
        self.written_bytes += frames.write(self._handle, segments.opening(origin))

    def _settle(self, begin: _Begin) -> None:
        """Make the new segment durable, and remove those that no snapshot needs any more."""
        if self._handle is not None:
            self._sync()
            fsync_folder(segments.segment_path(self._journal, begin.origin).parent)
            remove(unneeded(self._journal, begin.origin, oldest_step=begin.oldest_step))

    def _write(self, record: _Record) -> None:
        if self._handle is None:
            return
        end = self._handle.tell()
        try:
            self.written_bytes += frames.write(self._handle, record.parts)
        except OSError:
            _mark_loss(self._handle, end)
            raise
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


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or f"{type(error).__name__}: {error}"


def _mark_loss(handle: FileIO, end: int) -> None:
    """Leave after the last whole record what no kill leaves: a hole, which a full disk has room for. So a reader knows
    that this rank went on without its journal.
    """
    with contextlib.suppress(OSError):
        handle.truncate(end)
        handle.truncate(end + frames.FRAME_BYTES)


def _end_quietly(handle: FileIO) -> None:
    """What a segment holds becomes durable, if that is possible."""
    try:
        with handle:
            os.fsync(handle.fileno())
    except OSError as error:
        LOG.warning("a segment of the journal could not be ended: %s", error)

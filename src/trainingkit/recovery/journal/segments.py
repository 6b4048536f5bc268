"""Segments: the files of one rank's journal, each begun where a snapshot was taken.

    journal/rank-R/seg-<first step>.a<attempt>.tkj    the letters TKJOURN1, a record that says whose it is, one a step

A segment's first record has no blobs; its head is `Origin`. What a record of a step holds is `trainer.journalling`'s
business, except for `shared` and `own`, which are differences from the record before (`delta`).
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainingkit.core.errors import CheckpointError
from trainingkit.recovery.journal import frames
from trainingkit.recovery.journal.frames import BadFrame, Record

OPENING = b"TKJOURN1"
VERSION = 1
_NAME = re.compile(r"seg-(\d{8,})\.a(\d+)\.tkj")
_RANK = re.compile(r"rank-(\d+)")


@dataclass(frozen=True)
class Origin:
    """Whose segment it is, and which state its first step follows.

    Args:
        run: id of the run folder.
        attempt: the attempt of the run that wrote it; 1 for a run that was never resumed.
        rank, world_size: who wrote it, of how many.
        base_step: the step before its first.
        base_attempt: the attempt that the state of `base_step` is of.
    """

    run: str
    attempt: int
    rank: int
    world_size: int
    base_step: int
    base_attempt: int
    version: int = VERSION


@dataclass(frozen=True)
class Slot:
    """Where in the run folder a segment belongs, by its name."""

    rank: int
    first_step: int
    attempt: int
    path: Path


def rank_folder(journal: Path, rank: int) -> Path:
    """The folder of one rank's segments."""
    return journal / f"rank-{rank}"


def segment_path(journal: Path, origin: Origin) -> Path:
    """The file of a segment."""
    return rank_folder(journal, origin.rank) / f"seg-{origin.base_step + 1:08d}.a{origin.attempt}.tkj"


def slots(journal: Path) -> list[Slot]:
    """All segments by their names: by rank, attempt and first step. Nothing is opened."""
    found: list[Slot] = []
    for folder in journal.iterdir() if journal.is_dir() else ():
        rank = _RANK.fullmatch(folder.name)
        for path in folder.iterdir() if rank else ():
            name = _NAME.fullmatch(path.name)
            if rank and name and path.is_file():
                found.append(Slot(int(rank[1]), int(name[1]), int(name[2]), path))
    return sorted(found, key=lambda slot: (slot.rank, slot.attempt, slot.first_step))


def opening(origin: Origin) -> list[frames.Bytes]:
    """The parts of a segment's beginning."""
    return [OPENING, *frames.pack(origin.base_step, dataclasses.asdict(origin), {})]


@dataclass(frozen=True)
class Entry:
    """A step's record in a segment: where it is, and what its head says.

    Args:
        blobs: name -> (place in the file, bytes).
        end: place in the file where the record ends.
    """

    step: int
    head: dict[str, Any]
    path: Path
    blobs: dict[str, tuple[int, int]]
    end: int

    def blob(self, name: str) -> bytes:
        """Read one blob; its checksum was looked at when the segment was scanned.

        Raises:
            CheckpointError: the file cannot be read any more.
        """
        start, size = self.blobs[name]
        try:
            with open(self.path, "rb") as handle:
                handle.seek(start)
                data = handle.read(size)
        except OSError as error:
            raise _gone(self.path, error.strerror or str(error)) from error
        if len(data) != size:
            raise _gone(self.path, f"it has become shorter than {start + size} bytes")
        return data


@dataclass(frozen=True)
class Scan:
    """One segment as it was found.

    Args:
        origin: None where not even that could be read.
        entries: the steps whose records are whole, up to the first that is not.
        problem: what is wrong with the rest of the file; None where there is none.
        cut: the problem is a record whose writing was cut short, as a kill leaves it.
        size: bytes of the file.
    """

    slot: Slot
    origin: Origin | None
    entries: tuple[Entry, ...]
    problem: str | None
    cut: bool
    size: int


def scan(slot: Slot) -> Scan:
    """Read a segment and check every record; the file is not changed."""
    entries: list[Entry] = []
    origin: Origin | None = None
    size = at = 0
    try:
        size = slot.path.stat().st_size
        with open(slot.path, "rb") as handle:
            origin, at = _begin(handle, size, slot)
            while at < size:
                record = frames.read(handle, size - at)
                _check_order(record, entries, origin)
                entries.append(_entry(record, slot.path, at))
                at += record.length
    except BadFrame as error:
        where = f"at byte {at} of {size}" if at else "at its beginning"
        return Scan(slot, origin, tuple(entries), f"{where}: {error}", error.cut, size)
    except OSError as error:
        return Scan(slot, origin, tuple(entries), f"it cannot be read ({error.strerror})", False, size)
    return Scan(slot, origin, tuple(entries), None, False, size)


def _begin(handle: Any, size: int, slot: Slot) -> tuple[Origin, int]:
    found = handle.read(len(OPENING))
    if found != OPENING:
        raise BadFrame(f"found {found!r}, expected {OPENING!r}", cut=OPENING.startswith(found))
    record = frames.read(handle, size - len(OPENING))
    try:
        origin = Origin(**record.head)
    except TypeError as error:
        raise BadFrame("it does not say whose it is", cut=False) from error
    if origin.version != VERSION:
        raise BadFrame(f"found format {origin.version}, expected {VERSION}", cut=False)
    named = (slot.rank, slot.first_step - 1, slot.attempt)
    if (origin.rank, origin.base_step, origin.attempt) != named:
        text = f"it is rank {origin.rank}'s from step {origin.base_step + 1} on, attempt {origin.attempt}"
        raise BadFrame(f"{text}, in the place of another", cut=False)
    return origin, len(OPENING) + record.length


def _check_order(record: Record, entries: list[Entry], origin: Origin) -> None:
    expected = entries[-1].step + 1 if entries else origin.base_step + 1
    if record.step != expected:
        raise BadFrame(f"found step {record.step}, expected {expected}", cut=False)


def _entry(record: Record, path: Path, at: int) -> Entry:
    blobs: dict[str, tuple[int, int]] = {}
    start = at + record.length - sum(len(blob) for blob in record.blobs.values())
    for name, blob in record.blobs.items():
        blobs[name] = (start, len(blob))
        start += len(blob)
    return Entry(record.step, record.head, path, blobs, at + record.length)


def _gone(path: Path, problem: str) -> CheckpointError:
    return CheckpointError(
        f"A segment of the journal cannot be read any more: {problem}.",
        field="journal",
        found=str(path),
        expected="the file as it was when it was looked through",
        next_step="Resume again: the journal is looked through anew.",
    )

"""Is there room for a snapshot, and what to say when there was not."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from trainingkit.core.errors import CheckpointError
from trainingkit.core.units import format_bytes


class NotWritten(CheckpointError):
    """The disk refused a snapshot. Another try may go well; earlier snapshots are intact."""


FULL = {errno.ENOSPC: "the disk is full", errno.EDQUOT: "the disk quota is used up"}


def free_bytes(folder: Path) -> int:
    """Bytes that this user may still write on the filesystem of `folder`. A quota is not seen."""
    facts = os.statvfs(folder)
    return facts.f_bavail * facts.f_frsize


def require(folder: Path, needed_bytes: int) -> None:
    """Raise NotWritten when the filesystem has fewer than `needed_bytes` left."""
    if free_bytes(folder) < needed_bytes:
        raise _no_room(folder, needed_bytes, FULL[errno.ENOSPC])


def write_error(error: OSError, folder: Path, needed_bytes: int) -> NotWritten:
    """What to tell a person about an OSError that stopped a save."""
    if error.errno in FULL:
        return _no_room(folder, needed_bytes, FULL[error.errno])
    return NotWritten(
        f"The snapshot could not be written: {error.strerror or error}.",
        field="snapshots",
        found=str(error.filename or folder),
        expected=f"a folder that takes {format_bytes(needed_bytes)}",
        next_step="Mend it and resume; earlier snapshots are intact.",
    )


def _no_room(folder: Path, needed_bytes: int, why: str) -> NotWritten:
    try:
        found = f"{format_bytes(free_bytes(folder))} free in {folder}"
    except OSError:
        found = str(folder)
    return NotWritten(
        f"The snapshot could not be written: {why}.",
        field="snapshots",
        found=found,
        expected=f"at least {format_bytes(needed_bytes)} free for one more snapshot",
        next_step="Free space or use another run folder, then resume; earlier snapshots are intact.",
    )

"""Writing files so that a reader sees the old content or the new one, never half of it."""

from __future__ import annotations

import contextlib
import errno
import os
import zlib
from pathlib import Path

CRC_BLOCK_BYTES = 1 << 20


def fsync_folder(folder: Path) -> None:
    """Make a creation or a rename inside `folder` durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write beside `path`, fsync, rename over it, fsync the folder. Raises OSError and leaves the old file."""
    if path.exists() and not path.is_file():
        raise FileExistsError(errno.EEXIST, "what is there is not a regular file", str(path))
    data = content.encode() if isinstance(content, str) else content
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(beside, "wb") as handle:
            handle.write(data)
            handle.flush()
            os.fsync(handle.fileno())
        beside.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise
    fsync_folder(path.parent)


def end_last_line(path: Path) -> None:
    """End a line that a killed process left without its newline, so that the next one that is appended stands alone."""
    if not path.exists() or path.stat().st_size == 0:
        return
    with open(path, "rb+") as handle:
        handle.seek(-1, os.SEEK_END)
        if handle.read(1) != b"\n":
            handle.write(b"\n")


def crc32_of(path: Path) -> int:
    """CRC-32 (zlib's polynomial) of a file's content, read in blocks."""
    crc = 0
    with open(path, "rb") as handle:
        while block := handle.read(CRC_BLOCK_BYTES):
            crc = zlib.crc32(block, crc)
    return crc

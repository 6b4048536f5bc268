"""Writing large files that this host will not read soon, past the page cache (O_DIRECT).

Pages for a file that nobody reads cost the processor more than the copying (on a virtual machine that gives memory back
to its host several times more), and push out those that somebody does read, such as the training data. Where a file
system takes no direct access, they go through the page cache.
"""

from __future__ import annotations

import errno
import fcntl
import io
import mmap
import os
import zlib
from collections.abc import Callable
from pathlib import Path

BLOCK_BYTES = 1 << 20
SECTOR_BYTES = 4096
"""Direct access wants addresses, places and lengths that are multiples of the device's block: 512 to 4096 bytes."""
_DIRECT: int = getattr(os, "O_DIRECT", 0)
_REFUSED = {errno.EINVAL, errno.EOPNOTSUPP}


class DirectWriter(io.RawIOBase):
    """A new file, or an old one emptied, written from its beginning to its end.

    What was written is in the file after `flush`, and when somebody has asked for the descriptor (to fsync it). Nothing
    is written a second time then, so what was made durable stays so.

    Attributes:
        crc32: of the bytes taken so far (zlib's polynomial).
    """

    def __init__(self, path: Path) -> None:
        self.crc32 = 0
        self._fd = -1
        self._at = self._filled = self._flushed = 0
        self._fd = _open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        self._block = mmap.mmap(-1, BLOCK_BYTES)

    def writable(self) -> bool:
        """Always."""
        return True

    def write(self, data: bytes | bytearray | memoryview, /) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Take all of `data`; returns its bytes. Raises OSError."""
        left = memoryview(data).cast("B")
        size = len(left)
        self.crc32 = zlib.crc32(left, self.crc32)
        while left:
            taken = min(BLOCK_BYTES - self._filled, len(left))
            self._block[self._filled : self._filled + taken] = left[:taken]
            self._filled += taken
            left = left[taken:]
            if self._filled == BLOCK_BYTES:
                self._put(BLOCK_BYTES)
                self._at += BLOCK_BYTES
                self._filled = 0
        return size

    def tell(self) -> int:
        """Bytes taken so far."""
        return self._at + self._filled

    def flush(self) -> None:
        """The last block goes out filled up, and the file is cut to its length."""
        if self.closed or self.tell() == self._flushed:
            return
        if self._filled:
            self._put(-(-self._filled // SECTOR_BYTES) * SECTOR_BYTES)
            os.ftruncate(self._fd, self.tell())
        self._flushed = self.tell()

    def fileno(self) -> int:
        """The descriptor, after a `flush`."""
        self.flush()
        return self._fd

    def close(self) -> None:
        """Flush, and close. Safe to call twice."""
        if self.closed:
            return
        try:
            self.flush()
        finally:
            self._at, self._filled = self._flushed, 0  # the inherited close flushes again
            if self._fd >= 0:
                os.close(self._fd)
            super().close()

    def _put(self, size: int) -> None:
        with memoryview(self._block) as block:
            done = 0
            while done < size:
                done += _directly(self._fd, lambda done=done: os.pwrite(self._fd, block[done:size], self._at + done))


def _open(path: Path, flags: int) -> int:
    try:
        return os.open(path, flags | _DIRECT, 0o666)
    except OSError as error:
        if error.errno not in _REFUSED:
            raise
        return os.open(path, flags, 0o666)


def _directly(fd: int, transfer: Callable[[], int]) -> int:
    """Do it; where the file system refuses this address, place or length, do it through the page cache from here on."""
    try:
        return transfer()
    except OSError as error:
        flags = fcntl.fcntl(fd, fcntl.F_GETFL)
        if error.errno not in _REFUSED or not flags & _DIRECT:
            raise
        fcntl.fcntl(fd, fcntl.F_SETFL, flags & ~_DIRECT)
        return transfer()

"""Writing tokens to numbered files of bounded size."""

from __future__ import annotations

import contextlib
import os
import zlib
from pathlib import Path
from types import TracebackType
from typing import IO

import numpy as np

from trainingkit.data.manifest import FileSum


class ShardWriter:
    """Appends tokens to `{side}-00000.bin`, `{side}-00001.bin`, ...; each is durable once the next begins.

    Args:
        folder: where the shards go.
        side: "train" or "validation".
        dtype: "<u2" or "<u4".
        shard_bytes: size after which a new shard begins.
    """

    def __init__(self, folder: Path, side: str, dtype: str, shard_bytes: int) -> None:
        self._folder = folder
        self._side = side
        self._dtype = np.dtype(dtype)
        self._shard_tokens = max(shard_bytes // self._dtype.itemsize, 1)
        self._done: list[FileSum] = []
        self._handle: IO[bytes] | None = None
        self._in_shard = 0
        self._crc = 0
        self.tokens = 0

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of a file that was not finished, because writing it failed."""
        if self._handle is not None:
            with contextlib.suppress(OSError):
                self._handle.close()

    def write(self, ids: np.ndarray) -> None:
        """Append `ids`: [n] integers that the dtype holds."""
        assert not ids.size or (ids.min() >= 0 and ids.max() <= np.iinfo(self._dtype).max)
        while len(ids):
            part, ids = np.split(ids, [self._shard_tokens - self._in_shard])
            self._append(part.astype(self._dtype).tobytes(), len(part))
            if self._in_shard == self._shard_tokens:
                self._finish_shard()

    def close(self) -> tuple[FileSum, ...]:
        """Finish the last shard; the sums of all, in order."""
        self._finish_shard()
        return tuple(self._done)

    def _name(self) -> str:
        return f"{self._side}-{len(self._done):05d}.bin"

    def _append(self, content: bytes, count: int) -> None:
        if self._handle is None:
            self._handle = open(self._folder / self._name(), "wb")  # noqa: SIM115 - closed by _finish_shard
            self._crc = 0
        self._handle.write(content)
        self._crc = zlib.crc32(content, self._crc)
        self._in_shard += count
        self.tokens += count

    def _finish_shard(self) -> None:
        if self._handle is None:
            return
        self._handle.flush()
        os.fsync(self._handle.fileno())
        self._handle.close()
        self._handle = None
        self._done.append(FileSum(file=self._name(), n_bytes=self._in_shard * self._dtype.itemsize, crc32=self._crc))
        self._in_shard = 0

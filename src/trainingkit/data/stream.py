"""One long row of tokens, read by position: in memory, over many mapped files, or a stretch of another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np

from trainingkit.core.errors import DataError
from trainingkit.data.files import DataFile

OPEN_MAPS = 64


class TokenStream(Protocol):
    """Tokens by position; safe to read from several threads."""

    def __len__(self) -> int:
        """How many tokens."""
        ...

    def read(self, start: int, stop: int) -> np.ndarray:
        """Tokens start, ..., stop - 1: [stop - start] int64, a fresh array. 0 <= start <= stop <= len."""
        ...


@dataclass(frozen=True, eq=False)
class ArrayStream:
    """Tokens in memory. tokens: [n] of any integer dtype."""

    tokens: np.ndarray

    def __len__(self) -> int:
        return len(self.tokens)

    def read(self, start: int, stop: int) -> np.ndarray:
        """See TokenStream."""
        return self.tokens[start:stop].astype(np.int64)


@dataclass(frozen=True, eq=False)
class Stretch:
    """The tokens start, ..., stop - 1 of another stream; nothing outside can be read through it."""

    stream: TokenStream
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def read(self, start: int, stop: int) -> np.ndarray:
        """See TokenStream."""
        assert 0 <= start <= stop <= len(self)
        return self.stream.read(self.start + start, self.start + stop)


class MappedFiles:
    """Files laid end to end, read through memory maps; never loaded whole, and at most 64 are mapped at a time.

    Args:
        files: none of them empty.
        dtype: of the tokens in the files, little endian.
        separator: a token put after each file, or None.
    """

    def __init__(self, files: Sequence[DataFile], dtype: str = "<u1", separator: int | None = None) -> None:
        self._files = list(files)
        self._dtype = np.dtype(dtype)
        self._separator = separator
        counts = np.array([file.n_bytes // self._dtype.itemsize for file in files], dtype=np.int64)
        self._counts = counts
        self._ends = np.cumsum(counts + (separator is not None))
        self._map = lru_cache(maxsize=OPEN_MAPS)(self._open)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def read(self, start: int, stop: int) -> np.ndarray:
        """See TokenStream.

        Raises:
            DataError: a file is gone or has another size than when it was found.
        """
        out = np.empty(stop - start, dtype=np.int64)
        if self._separator is not None:
            out.fill(self._separator)
        number = int(np.searchsorted(self._ends, start, side="right"))
        while start < stop:
            end = int(self._ends[number])
            begin = end - int(self._counts[number]) - (self._separator is not None)
            part = self._map(number)[start - begin : stop - begin]
            offset = len(out) - (stop - start)
            out[offset : offset + len(part)] = part
            start, number = min(end, stop), number + 1
        return out

    def _open(self, number: int) -> np.ndarray:
        file = self._files[number]
        try:
            found = file.path.stat().st_size
            if found == file.n_bytes:
                return np.memmap(file.path, dtype=self._dtype, mode="r", shape=(int(self._counts[number]),))
            what = f"{file.path}, {found} bytes"
        except OSError as error:
            what = f"{file.path}: {error.strerror}"
        raise DataError(
            "A data file changed while it was in use.",
            field="data.path",
            found=what,
            expected=f"{file.n_bytes} bytes, as when the data was opened",
            next_step="Put the file back, then resume the run.",
        )

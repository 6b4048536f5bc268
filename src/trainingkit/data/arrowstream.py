"""Rows of an Arrow column (strings, or lists of token ids) laid end to end as one row of tokens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(eq=False)
class ArrowStream:
    """Tokens of the chosen rows, read from the mapped table when asked for.

    Args:
        column: pyarrow ChunkedArray of strings (their UTF-8 bytes are the tokens) or of lists of integers.
        rows: [r] int64, row numbers that belong to this side.
        separator: a token put after each row, or None.
    """

    column: Any
    rows: np.ndarray
    separator: int | None = None
    _ends: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        lengths = row_lengths(self.column)[self.rows]
        self._ends = np.cumsum(lengths + (self.separator is not None))

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def read(self, start: int, stop: int) -> np.ndarray:
        """See `trainingkit.data.stream.TokenStream`."""
        parts: list[np.ndarray] = []
        number = int(np.searchsorted(self._ends, start, side="right"))
        while start < stop:
            begin = int(self._ends[number - 1]) if number else 0
            end = min(int(self._ends[number]), stop)
            parts.append(self._row(number)[start - begin : end - begin])
            start, number = end, number + 1
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    def _row(self, number: int) -> np.ndarray:
        tokens = row_tokens(self.column[int(self.rows[number])])
        return tokens if self.separator is None else np.append(tokens, self.separator)


def row_lengths(column: Any) -> np.ndarray:
    """[rows] int64: bytes or ids in each row; 0 for null."""
    import pyarrow.compute as pc

    is_list = hasattr(column.type, "value_type")
    lengths = pc.list_value_length(column) if is_list else pc.binary_length(column)  # pyright: ignore
    return pc.fill_null(lengths, 0).to_numpy().astype(np.int64)


def row_tokens(scalar: Any) -> np.ndarray:
    """[n] int64: the bytes of a string or the ids of a list; none for null."""
    if not scalar.is_valid:
        return np.zeros(0, np.int64)
    if hasattr(scalar, "as_buffer"):
        return np.frombuffer(scalar.as_buffer(), dtype=np.uint8).astype(np.int64)
    return scalar.values.to_numpy(zero_copy_only=False).astype(np.int64)

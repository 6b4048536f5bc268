"""IDX files, the format of MNIST and Fashion-MNIST, plain (mapped) or .gz (unpacked in memory).

A big-endian header (0, 0, type, number of dimensions, then each size as 32 bits) and the values in C order. Type 8,
unsigned bytes, is the one that image sets use (Y. LeCun, C. Cortes, C. Burges, "The MNIST database", format notes).
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np

from trainingkit.core.errors import DataError

UNSIGNED_BYTES = 8


def read_idx(path: Path, dimensions: int) -> np.ndarray:
    """The values of an IDX file: uint8 with `dimensions` dimensions, read-only.

    Raises:
        DataError: unreadable, not IDX, another type or number of dimensions, or not as long as its header says.
    """
    try:
        raw = _content(path)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise _not_idx(path, f"{type(error).__name__}: {error}", dimensions) from error
    header = 4 + 4 * dimensions
    if bytes(raw[:4]) != bytes([0, 0, UNSIGNED_BYTES, dimensions]) or len(raw) < header:
        raise _not_idx(path, f"first bytes {bytes(raw[:4]).hex()}", dimensions)
    shape = tuple(int(size) for size in np.frombuffer(bytes(raw[4:header]), dtype=">u4"))
    expected = header + int(np.prod(shape, dtype=np.int64))
    if len(raw) != expected:
        raise _not_idx(path, f"{len(raw)} bytes, where its header {shape} means {expected}", dimensions)
    return raw[header:].reshape(shape)


def find_idx(folder: Path, stem: str) -> Path | None:
    """`stem` or `stem`.gz in `folder`; also with a dot before `idx`, as some copies have it."""
    for name in (stem, stem.replace("-idx", ".idx")):
        for path in (folder / name, folder / f"{name}.gz"):
            if path.is_file():
                return path
    return None


def _content(path: Path) -> np.ndarray:
    if path.suffix == ".gz":
        with gzip.open(path, "rb") as handle:
            return np.frombuffer(handle.read(), dtype=np.uint8)
    return np.memmap(path, dtype=np.uint8, mode="r")


def _not_idx(path: Path, what: str, dimensions: int) -> DataError:
    return DataError(
        "This is not a whole IDX file.",
        field="data.path",
        found=f"{path}: {what}",
        expected=f"an IDX file of unsigned bytes with {dimensions} dimensions, plain or .gz",
        next_step="Fetch the file again.",
    )

"""One digest for any amount of content, in bounded time."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from trainingkit.core.errors import DataError
from trainingkit.data.files import DataFile

FULL_UP_TO_BYTES = 256 * 10**6
BLOCK_BYTES = 1 << 16
SAMPLED_BLOCKS = 4096


def digest_files(files: Sequence[DataFile]) -> str:
    """SHA-256, in hex, over a corpus of files in the given order.

    Always covers each file's name (relative, with forward slashes) and size. Up to 256 MB in all it covers the whole
    content, each file after its name and size. Beyond, after all names and sizes it covers 4096 blocks of 64 KiB,
    evenly spread over the files laid end to end (a block ends where its file ends), so a change between two blocks
    that keeps all sizes is not seen.

    Raises:
        DataError: a file cannot be read.
    """
    digest = hashlib.sha256()
    whole = sum(file.n_bytes for file in files) <= FULL_UP_TO_BYTES
    for file in files:
        digest.update(f"{file.name}\0{file.n_bytes}\0".encode("utf-8", "surrogateescape"))
        if whole:
            _update(digest, file, 0, file.n_bytes)
    if not whole:
        for file, start in _spread(files):
            _update(digest, file, start, min(BLOCK_BYTES, file.n_bytes - start))
    return digest.hexdigest()


def covers(files: Sequence[DataFile]) -> tuple[str, ...]:
    """A note for `DataInfo.notes` where the digest is over samples; else none."""
    if sum(file.n_bytes for file in files) <= FULL_UP_TO_BYTES:
        return ()
    return (f"sha256 covers names, sizes and {SAMPLED_BLOCKS} evenly spread blocks of {BLOCK_BYTES} bytes.",)


def _spread(files: Sequence[DataFile]) -> list[tuple[DataFile, int]]:
    """(file, offset) of each sampled block, in order."""
    total = sum(file.n_bytes for file in files)
    places: list[tuple[DataFile, int]] = []
    remaining = iter(files)
    file, begin = next(remaining), 0
    for block in range(SAMPLED_BLOCKS):
        position = block * (total - BLOCK_BYTES) // (SAMPLED_BLOCKS - 1)
        while position >= begin + file.n_bytes:
            begin += file.n_bytes
            file = next(remaining)
        places.append((file, position - begin))
    return places


def _update(digest: hashlib._Hash, file: DataFile, start: int, count: int) -> None:
    try:
        with open(file.path, "rb") as handle:
            handle.seek(start)
            while count > 0 and (block := handle.read(min(count, 1 << 20))):
                digest.update(block)
                count -= len(block)
    except OSError as error:
        raise DataError(
            f"A data file cannot be read: {error.strerror}.",
            field="data.path",
            found=str(file.path),
            expected="a readable file",
            next_step="Check its permissions, or take it out of the folder.",
        ) from error

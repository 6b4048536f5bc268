"""Text files as documents in pieces of bounded size, for the tokeniser."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from trainingkit.core.errors import DataError
from trainingkit.data import split
from trainingkit.data.files import DataFile, total_bytes

BLOCK_BYTES = 1 << 18
LONGEST_PIECE = 1 << 20
_STRAY_BYTE = re.compile("[\udc80-\udcff]")


@dataclass(frozen=True)
class Span:
    """The bytes start, ..., stop - 1 of a file: one document."""

    file: DataFile
    start: int
    stop: int


@dataclass(frozen=True)
class Piece:
    """Part of a document.

    Args:
        text: decoded UTF-8.
        n_bytes: bytes read from the file for it (give or take a character that straddles a block).
        replaced: bytes that are no UTF-8 and became U+FFFD.
        last: True for the end of a document.
    """

    text: str
    n_bytes: int
    replaced: int
    last: bool


def two_sides(files: Sequence[DataFile], share: float) -> tuple[list[Span], list[Span]]:
    """(train, validation): by file from 20 files on, else the tail of the bytes, cut after a line end."""
    if len(files) >= split.FILES_FOR_SPLIT:
        pairs = list(zip(files, split.by_name([file.name for file in files], share), strict=True))
        whole = [(Span(file, 0, file.n_bytes), held) for file, held in pairs]
        return [span for span, held in whole if not held], [span for span, held in whole if held]
    border = total_bytes(files) - round(total_bytes(files) * share)
    train: list[Span] = []
    validation: list[Span] = []
    begin = 0
    for file in files:
        cut = min(max(border - begin, 0), file.n_bytes)
        cut = _after_line(file, cut) if 0 < cut < file.n_bytes else cut
        train += [Span(file, 0, cut)] if cut else []
        validation += [Span(file, cut, file.n_bytes)] if cut < file.n_bytes else []
        begin += file.n_bytes
    return train, validation


def pieces(spans: Iterable[Span]) -> Iterator[Piece]:
    """All documents in order, in pieces that end after a line (or at 1 Mi characters without one).

    Raises:
        DataError: a file cannot be read, or became shorter.
    """
    for span in spans:
        carry, read, replaced = "", 0, 0
        for decoded, n_bytes, strays in _decoded(span):
            carry, read, replaced = carry + decoded, read + n_bytes, replaced + strays
            cut = carry.rfind("\n") + 1 or (len(carry) if len(carry) >= LONGEST_PIECE else 0)
            if cut:
                yield Piece(carry[:cut], read, replaced, last=False)
                carry, read, replaced = carry[cut:], 0, 0
        yield Piece(carry, read, replaced, last=True)


def _decoded(span: Span) -> Iterator[tuple[str, int, int]]:
    """(text, bytes read, stray bytes) of each block; a stray byte becomes U+FFFD."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="surrogateescape")
    left = span.stop - span.start
    try:
        with open(span.file.path, "rb") as handle:
            handle.seek(span.start)
            while left:
                block = handle.read(min(BLOCK_BYTES, left))
                if not block:
                    raise OSError(0, f"it ends {left} bytes early")
                left -= len(block)
                text, strays = _STRAY_BYTE.subn("\ufffd", decoder.decode(block, final=not left))
                yield text, len(block), strays
    except OSError as error:
        raise DataError(
            f"A text file cannot be read: {error.strerror}.",
            field="INPUT",
            found=str(span.file.path),
            expected=f"a readable file of {span.file.n_bytes} bytes",
            next_step="Check the file, remove the half-built folder, and build again.",
        ) from error


def _after_line(file: DataFile, offset: int) -> int:
    """The first place at or after `offset` that follows a line end; else the next character's first byte."""
    with open(file.path, "rb") as handle:
        handle.seek(offset)
        block = handle.read(BLOCK_BYTES)
    line_end = block.find(b"\n") + 1
    if 0 < line_end < file.n_bytes - offset:
        return offset + line_end
    at_end = len(block) if len(block) < 4 else 0
    return offset + next((place for place, byte in enumerate(block[:4]) if byte & 0xC0 != 0x80), at_end)

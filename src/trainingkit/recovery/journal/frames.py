"""One record of a journal file: a frame with its own checksum, so that a reader knows where what is whole ends.

bytes 0-3     the letters TKJR
bytes 4-7     CRC-32 (zlib's polynomial) of everything after it, little-endian like all numbers here
bytes 8-15    step
bytes 16-19   length of the head
bytes 20-27   length of the blobs together
then          the head, JSON as `recovery.jsonstate` writes it; its `blobs` lists name and length of each blob
then          the blobs, one after the other
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import RawIOBase
from typing import Any, BinaryIO

from trainingkit.core.errors import CheckpointError
from trainingkit.recovery import jsonstate

MAGIC = b"TKJR"
_FRONT = struct.Struct("<4sI")
_REST = struct.Struct("<QIQ")
FRAME_BYTES = _FRONT.size + _REST.size

Bytes = bytes | bytearray | memoryview


class BadFrame(Exception):
    """What stands here is no whole record; the text says why.

    Attributes:
        cut: it looks like a record whose writing was cut short, not like one that was changed.
    """

    def __init__(self, text: str, *, cut: bool) -> None:
        super().__init__(text)
        self.cut = cut


@dataclass(frozen=True)
class Record:
    """One whole record.

    Args:
        head: without `blobs`.
        blobs: by name.
        length: of the whole frame in bytes.
    """

    step: int
    head: dict[str, Any]
    blobs: dict[str, memoryview]
    length: int


def pack(step: int, head: Mapping[str, Any], blobs: Mapping[str, Bytes]) -> list[Bytes]:
    """The parts of a frame, to be written one after the other; blobs are not copied.

    Raises:
        CheckpointError: something in the head has no JSON form.
    """
    sizes = [[name, len(blob)] for name, blob in blobs.items()]
    text = jsonstate.dumps({**head, "blobs": sizes}, where="journal").encode()
    rest = _REST.pack(step, len(text), sum(size for _, size in sizes))
    crc = 0
    for part in (rest, text, *blobs.values()):
        crc = zlib.crc32(part, crc)
    return [_FRONT.pack(MAGIC, crc) + rest + text, *blobs.values()]


def read(handle: BinaryIO, left: int) -> Record:
    """The record at the position of a file.

    Args:
        left: bytes from there to the end of the file.

    Raises:
        BadFrame: there is none that is whole.
    """
    front = handle.read(FRAME_BYTES)
    if len(front) < FRAME_BYTES:
        raise BadFrame(f"it ends after {len(front)} of {FRAME_BYTES} bytes of a frame", cut=True)
    magic, crc = _FRONT.unpack_from(front)
    step, head_bytes, blob_bytes = _REST.unpack_from(front, _FRONT.size)
    if magic != MAGIC:
        raise BadFrame(f"found {magic!r}, expected {MAGIC!r}", cut=False)
    length = FRAME_BYTES + head_bytes + blob_bytes
    if length > left:
        raise BadFrame(f"it ends after {left} of {length} bytes of a record", cut=True)
    body = handle.read(length - FRAME_BYTES)
    found = zlib.crc32(body, zlib.crc32(front[_FRONT.size :]))
    if found != crc:
        raise BadFrame(f"found CRC-32 {found:08x}, expected {crc:08x}", cut=False)
    return _record(step, memoryview(body), head_bytes, length)


def write(handle: RawIOBase, parts: Sequence[Bytes]) -> int:
    """Write a frame's parts, all of them; returns their bytes. Raises OSError."""
    for part in parts:
        view = memoryview(part)
        while view:
            view = view[handle.write(view) or 0 :]
    return sum(len(part) for part in parts)


def _record(step: int, body: memoryview, head_bytes: int, length: int) -> Record:
    """A record whose checksum is right; a head that still cannot be used was written by something else."""
    try:
        head = jsonstate.loads(bytes(body[:head_bytes]), where="journal")
        blobs: dict[str, memoryview] = {}
        start = head_bytes
        for name, size in head.pop("blobs"):
            blobs[str(name)] = body[start : start + size]
            start += size
    except (CheckpointError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadFrame(f"its head cannot be read ({type(error).__name__})", cut=False) from error
    if start != len(body):
        raise BadFrame(f"found {len(body) - head_bytes} bytes of blobs, expected {start - head_bytes}", cut=False)
    return Record(step, head, blobs, length)

"""The files that a program on a host gets, and the ends of pipes that its creator keeps."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, Any

Stream = int | IO[Any] | None
_INHERITED = {"stdout": 1, "stderr": 2}


@dataclass
class Streams:
    """Open files of one start.

    Args:
        theirs: stdin, stdout, stderr and the status pipe of the program; they are closed here after the start.
        ours: our ends of pipes by name; "status" among them. Closed unless `keep` was called.
    """

    theirs: list[int] = field(default_factory=list)
    ours: dict[str, int] = field(default_factory=dict)
    opened: list[int] = field(default_factory=list)

    def keep(self) -> tuple[int, dict[str, IO[bytes]]]:
        """The start has worked: the status file, and our ends of pipes as files. Both are the caller's now."""
        ends, self.ours = self.ours, {}
        status = ends.pop("status")
        return status, {name: os.fdopen(end, "wb" if name == "stdin" else "rb") for name, end in ends.items()}

    def add(self, name: str, stream: Stream) -> None:
        """Open what `stream` asks for as `name`."""
        if stream == subprocess.PIPE:
            self._add_pipe(name)
        elif stream == subprocess.STDOUT:
            self.theirs.append(self.theirs[1])
        elif stream == subprocess.DEVNULL or (stream is None and name == "stdin"):
            self._add_opened(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC))
        elif stream is None:
            self.theirs.append(_INHERITED[name])
        else:
            self.theirs.append(stream if isinstance(stream, int) else stream.fileno())

    def _add_pipe(self, name: str) -> None:
        reading, writing = os.pipe()
        theirs, self.ours[name] = (reading, writing) if name == "stdin" else (writing, reading)
        self._add_opened(theirs)

    def _add_opened(self, file: int) -> None:
        self.opened.append(file)
        self.theirs.append(file)


@contextlib.contextmanager
def open_streams(stdin: Stream, stdout: Stream, stderr: Stream) -> Iterator[Streams]:
    """The files for one start, closed on the way out; our own ends too, unless they were kept."""
    streams = Streams()
    try:
        streams.add("stdin", stdin)
        streams.add("stdout", stdout)
        streams.add("stderr", stderr)
        streams.add("status", subprocess.PIPE)
        yield streams
    finally:
        for file in (*streams.opened, *streams.ours.values()):
            os.close(file)

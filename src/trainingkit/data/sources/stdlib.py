"""kind = "stdlib": the source of Python's own standard library, which every machine with Python has."""

from __future__ import annotations

import os
import platform
import sysconfig
from pathlib import Path

import numpy as np
from pydantic import Field

from trainingkit.core.errors import DataError
from trainingkit.core.section import Section
from trainingkit.data import split
from trainingkit.data.contract import Corpus
from trainingkit.data.digest import digest_files
from trainingkit.data.files import DataFile
from trainingkit.data.registry import SOURCES
from trainingkit.data.stream import ArrayStream
from trainingkit.data.windows import FILE_SEPARATOR, byte_facts, language_corpus

LEFT_OUT_FOLDERS = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}
LEFT_OUT_PREFIXES = ("_sysconfigdata", "config-")
NOTE = (
    "Tests, installed packages and files made for one machine (_sysconfigdata*, config-*) are left out, "
    "so that installs of one version agree."
)


@SOURCES.register("stdlib")
class StdlibData(Section):
    """Bytes of the standard library's *.py files as tokens, split by file, each file followed by a NUL."""

    seq_len: int = Field(default=256, ge=2, description="bytes in a sample")
    validation_share: float = Field(default=0.05, gt=0, lt=1, description="share of files kept for validation")

    def open(self) -> Corpus:
        """Read all files into memory (about 15 MB).

        Raises:
            DataError: this Python has no source files beside it.
        """
        files = stdlib_files(Path(sysconfig.get_path("stdlib")))
        is_validation = split.by_name([file.name for file in files], self.validation_share)
        sides = [
            ArrayStream(_load([file for file, held in zip(files, is_validation, strict=True) if held is side]))
            for side in (False, True)
        ]
        name = f"Python {platform.python_version()} standard library source"
        facts = byte_facts(name, digest_files(files), "PSF-2.0", (NOTE,))
        return language_corpus(sides[0], sides[1], self.seq_len, facts)


def stdlib_files(root: Path) -> list[DataFile]:
    """The *.py files below `root` that are the same on every machine, by name.

    Raises:
        DataError: there are fewer than two.
    """
    files: list[DataFile] = []
    for folder, below, names in os.walk(root):
        below[:] = [name for name in below if not _is_left_out(name)]
        for name in names:
            path = Path(folder) / name
            if name.endswith(".py") and not _is_left_out(name) and (size := path.stat().st_size):
                files.append(DataFile(path.relative_to(root).as_posix(), path, size))
    if len(files) < 2:
        raise DataError(
            "This Python has no standard library source on disk.",
            field="data.kind",
            found=f"{len(files)} *.py files below {root}",
            expected="a Python with its library as source files",
            next_step='Use [data] kind = "text" with a path to text of your own.',
        )
    return sorted(files, key=lambda file: file.name)


def _is_left_out(name: str) -> bool:
    return name in LEFT_OUT_FOLDERS or name.startswith(LEFT_OUT_PREFIXES)


def _load(files: list[DataFile]) -> np.ndarray:
    separator = bytes([FILE_SEPARATOR])
    content = b"".join(file.path.read_bytes() + separator for file in files)
    return np.frombuffer(content, dtype=np.uint8)

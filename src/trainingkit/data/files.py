"""Which files a path means: one file, all files below a folder, or a glob."""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from trainingkit.core.errors import DataError


@dataclass(frozen=True)
class DataFile:
    """One file of a corpus.

    Args:
        name: path relative to the corpus, with forward slashes; the same on every machine.
        path: where it is here.
        n_bytes: its size when the corpus was opened.
    """

    name: str
    path: Path
    n_bytes: int


def find_files(path: str, *, field: str = "data.path") -> tuple[list[DataFile], tuple[str, ...]]:
    """Files that `path` means, in order of their names, without the empty ones; and notes on what was left out.

    A folder means every file below it at any depth, without names that begin with a dot. A path with one of the
    characters `*?[` that does not exist as such is a glob (`**` for any depth).

    Raises:
        DataError: nothing is there, a file is not readable or not a regular file, or all are empty.
    """
    root, found, hidden = _candidates(path, field)
    files = [_describe(each, root, field) for each in found]
    kept = sorted((file for file in files if file.n_bytes), key=lambda file: file.name)
    if not kept:
        raise DataError(
            "There is nothing to read at this path.",
            field=field,
            found=f"{path} ({len(files)} empty files)" if files else f"{path} (no files)",
            expected="at least one file that is not empty",
            next_step="Check the path; names that begin with a dot are not read.",
        )
    notes = [(len(files) - len(kept), "empty files were left out."), (hidden, "files with hidden names were left out.")]
    return kept, tuple(f"{count} {text}" for count, text in notes if count)


def missing(path: str, field: str, expected: str) -> DataError:
    """The error for a path where nothing is."""
    return DataError(
        "There is nothing at this path.",
        field=field,
        found=f"{path} (looked at {Path(path).expanduser().absolute()})",
        expected=expected,
        next_step="Check the spelling; a relative path starts at the folder where the command runs.",
    )


def _candidates(path: str, field: str) -> tuple[Path, list[Path], int]:
    """(folder that names are relative to, files, how many hidden ones were skipped)."""
    root = Path(path).expanduser()
    if root.is_dir():
        every = _walk(root, field)
        shown = [each for each in every if not _is_hidden(each.relative_to(root))]
        return root, shown, len(every) - len(shown)
    if root.exists() or root.is_symlink():
        return root.parent, [root], 0
    matches = [Path(each) for each in _expand(root)] if glob.has_magic(path) else []
    matches = [each for each in matches if not each.is_dir()]
    if not matches:
        raise missing(path, field, "a file, a folder or a glob of text files")
    return Path(os.path.commonpath([each.parent for each in matches])), matches, 0


def _expand(pattern: Path) -> list[str]:
    return glob.glob(str(pattern), recursive=True)  # noqa: PTH207 - Path.glob takes no absolute pattern


def _walk(root: Path, field: str) -> list[Path]:
    """All files below `root`, through linked folders too, each folder once."""

    def refuse(error: OSError) -> None:
        raise _unreadable(Path(error.filename), field, str(error.strerror)) from error

    seen: set[tuple[int, int]] = set()
    found: list[Path] = []
    for folder, below, names in os.walk(root, followlinks=True, onerror=refuse):
        status = os.stat(folder)  # noqa: PTH116 - os.walk gives text
        if (status.st_dev, status.st_ino) in seen:
            below.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        below.sort()
        found += [Path(folder) / name for name in names]
    return found


def _is_hidden(relative: Path) -> bool:
    return any(part.startswith(".") for part in relative.parts)


def _describe(path: Path, root: Path, field: str) -> DataFile:
    try:
        status = path.stat()
    except OSError as error:
        raise _unreadable(path, field, str(error.strerror)) from error
    if not stat.S_ISREG(status.st_mode):
        raise _unreadable(path, field, "not a regular file")
    if not os.access(path, os.R_OK):
        raise _unreadable(path, field, "permission denied")
    return DataFile(path.relative_to(root).as_posix(), path, status.st_size)


def _unreadable(path: Path, field: str, why: str) -> DataError:
    return DataError(
        f"A data file cannot be read: {why}.",
        field=field,
        found=str(path),
        expected="a readable file",
        next_step="Check its permissions, or take it out of the folder.",
    )


def total_bytes(files: Iterable[DataFile]) -> int:
    """Bytes of all files."""
    return sum(file.n_bytes for file in files)

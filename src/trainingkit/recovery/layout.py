"""Names inside the snapshots folder, and the moves between them that a kill at any moment cannot turn into a loss.

step-00000120/             published: it was whole when it got this name
.step-00000120.partial/    being written, or cut short; never read
.step-00000120.replaced/   whole, set aside while another snapshot of the same step takes its name; still readable
.step-00000120.removed/    being deleted; never read
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from trainingkit.core.files import fsync_folder

_NAME = re.compile(r"(?:step-(\d{8,})|\.step-(\d{8,})\.(partial|replaced|removed))")
PUBLISHED = "published"
_AGE = {PUBLISHED: 0, "replaced": 1, "partial": 2, "removed": 3}


@dataclass(frozen=True)
class Place:
    """One folder below the snapshots folder; `kind` is "published", "replaced", "partial" or "removed"."""

    step: int
    kind: str
    path: Path


def step_of(path: Path) -> int | None:
    """The step in a snapshot folder's name; None for any other name."""
    match = _NAME.fullmatch(path.name)
    return int(match[1] or match[2]) if match else None


def published(folder: Path, step: int) -> Path:
    """Where the snapshot of `step` is when it is whole."""
    return folder / f"step-{step:08d}"


def aside(folder: Path, step: int, kind: str) -> Path:
    """Where a "partial", "replaced" or "removed" snapshot of `step` is."""
    return folder / f".step-{step:08d}.{kind}"


def places(folder: Path) -> list[Place]:
    """All snapshot folders, newest step first; for one step the published one first. Nothing is opened."""
    found: list[Place] = []
    for path in folder.iterdir() if folder.is_dir() else ():
        match = _NAME.fullmatch(path.name)
        if match and path.is_dir():
            found.append(Place(int(match[1] or match[2]), match[3] or PUBLISHED, path))
    return sorted(found, key=lambda place: (-place.step, _AGE[place.kind]))


def begin(folder: Path, step: int) -> Path:
    """A new, empty folder for the snapshot of `step`. Raises OSError, also when `discard` was not called before."""
    partial = aside(folder, step, "partial")
    partial.mkdir()
    fsync_folder(folder)
    return partial


def discard(folder: Path, step: int) -> None:
    """Delete what an attempt at `step` left, if anything. Raises OSError."""
    partial = aside(folder, step, "partial")
    if partial.exists():
        shutil.rmtree(partial)


def publish(folder: Path, step: int, *, old_is_good: bool) -> Path:
    """Give the finished partial folder its final name. Raises OSError.

    Args:
        old_is_good: whether a published snapshot of the same step, if there is one, is whole. It is then set aside,
            where it still counts, before the new one takes its name; a damaged one is deleted.
    """
    final = published(folder, step)
    if final.exists():
        replaced = aside(folder, step, "replaced")
        if not old_is_good:
            remove(folder, step, final)
        else:
            if replaced.exists():
                remove(folder, step, replaced)
            final.rename(replaced)
            fsync_folder(folder)
    aside(folder, step, "partial").rename(final)
    fsync_folder(folder)
    return final


def remove(folder: Path, step: int, path: Path) -> None:
    """Delete a snapshot folder: it first loses its name, so that a kill half-way leaves nothing that looks damaged."""
    doomed = aside(folder, step, "removed")
    if doomed.exists():
        shutil.rmtree(doomed)
    if path != doomed:
        path.rename(doomed)
        shutil.rmtree(doomed)

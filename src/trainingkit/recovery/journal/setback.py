"""Back to an earlier step: whatever is newer is put aside, so that a resume ends its replay exactly there.

Nothing is deleted. What needs room, copies, is made first: a disk that is full leaves the run as it was. Then segments
are cut, snapshots are moved, and the hosts' memory is left last, so that a kill in between leaves a run that resumes as
before, or that can be set back again.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from trainingkit.core.errors import CheckpointError
from trainingkit.core.files import fsync_folder
from trainingkit.core.runfolder import RunFolder
from trainingkit.recovery import layout
from trainingkit.recovery.journal.cover import Base, check_reaches
from trainingkit.recovery.journal.segments import Scan
from trainingkit.recovery.journal.survey import Lead, Survey, survey
from trainingkit.recovery.memory import folder_of_run, leave_memory

ASIDE = "aside"
MEMORY = "memory"


@dataclass(frozen=True)
class Setback:
    """What was done.

    Args:
        snapshot_step: of the snapshot that the step is reached from.
        replayed: steps that a resume takes from the journal after it.
        aside: the folder with what is newer; None where nothing was.
        moved: names of what went there whole or in part.
    """

    step: int
    snapshot_step: int
    replayed: int
    aside: Path | None
    moved: tuple[str, ...]


def set_back(run: RunFolder, step: int, *, ready: Callable[[], object] = lambda: None) -> Setback:
    """Make `step` the one that a resume goes on from. The caller holds the run's lock.

    Args:
        ready: called when it is known that the step can be reached and that there is room, before anything moves.

    Raises:
        CheckpointError: no whole snapshot and journal lead there, or the disk refused.
    """
    found = survey(run)
    lead = _leading(found, step)
    segments = _segments(found, lead, step)
    aside = _unused(run.root / ASIDE, f"{time.strftime('%Y%m%d-%H%M%S')}-after-step-{step}")
    with _told(aside, "Nothing has changed: free space", undo=lambda: shutil.rmtree(aside, ignore_errors=True)):
        for scan, end in segments:
            if end:
                _copy(scan.slot.path, _folder_of(scan, aside) / scan.slot.path.name)
        if found.in_memory:
            _copy(folder_of_run(run.snapshots), aside / MEMORY)
    ready()
    with _told(aside, "The run is only half set back, and what was moved is there: mend the disk"):
        moved = [_put_aside(scan, end, aside) for scan, end in segments]
        for place in layout.places(run.snapshots):
            if place.step > lead.found.step:
                moved.append(_move(place.path, aside / "snapshots"))
        _leave_memory(run, found)
    moved += [f"{MEMORY}/step-{each:08d}" for each in found.in_memory]
    return Setback(step, lead.found.step, step - lead.found.step, aside if moved else None, tuple(moved))


@contextlib.contextmanager
def _told(aside: Path, remedy: str, *, undo: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Context that turns an OSError into the CheckpointError that a person can act on."""
    try:
        yield
    except OSError as error:
        undo()
        raise CheckpointError(
            f"The run could not be set back: {error.strerror or error}.",
            field=ASIDE,
            found=str(error.filename or aside),
            expected="a folder that takes copies of what is newer",
            next_step=f"{remedy}, and run the same command again.",
        ) from error


def _unused(folder: Path, name: str) -> Path:
    names = itertools.chain([name], (f"{name}-{count}" for count in itertools.count(2)))
    return next(folder / each for each in names if not (folder / each).exists())


def _leading(found: Survey, step: int) -> Lead:
    """The newest whole snapshot from which the step can be reached."""
    good = [lead for lead in found.leads if lead.found.problem is None and lead.found.step <= step]
    for lead in good:
        if lead.reaches(step):
            return lead
    if good:
        newest = good[0]
        base = newest.base or Base("", 0, newest.found.step, newest.found.world_size or 1)
        check_reaches(newest.covered, base, step)
    ranges = ", ".join(f"{first} to {last}" if first < last else str(first) for first, last in found.reach())
    raise CheckpointError(
        "There is no whole snapshot of this step or an earlier one.",
        field="--to-step",
        found=step,
        expected=f"steps {ranges}" if ranges else "a run with a whole snapshot",
        next_step="List what is covered with: trainingkit recover RUN --inspect",
    )


def _segments(found: Survey, lead: Lead, step: int) -> list[tuple[Scan, int]]:
    """Segments that hold what must not count any more, each with the place where it is to be cut; 0: all of it goes.

    A rank that has no record of the step, because it lost them, must not look as if it had been killed earlier, which
    would end all of them there: what it has in the place of the others' records goes whole. They hold its messages.
    """
    taken = next((each for each in lead.covered.steps if each.step == step), None)
    attempt = taken.attempt if taken else lead.base.attempt if lead.base is not None else 0
    holding = {entry.path.name for entry in taken.entries.values()} if taken else set()
    chosen: list[tuple[Scan, int]] = []
    for scan in found.scans:
        kept = [entry for entry in scan.entries if entry.step <= step and scan.slot.attempt <= attempt]
        lost = taken is not None and scan.slot.path.name in holding and scan.slot.rank not in taken.entries
        if lost or _is_newer(scan, step, attempt):
            chosen.append((scan, kept[-1].end if kept and not lost else 0))
    return chosen


def _is_newer(scan: Scan, step: int, attempt: int) -> bool:
    """Whether a segment holds anything that must not count any more."""
    last = scan.entries[-1].step if scan.entries else scan.slot.first_step
    return scan.slot.attempt > attempt or last > step or scan.problem is not None


def _leave_memory(run: RunFolder, found: Survey) -> None:
    """A resume must not take up what hosts keep in memory of the way that is left; this host's part is on disk now."""
    memory = folder_of_run(run.snapshots) if found.in_memory else None
    leave_memory(run.snapshots)
    if memory is not None:
        shutil.rmtree(memory)


def _folder_of(scan: Scan, aside: Path) -> Path:
    path = scan.slot.path
    return aside / path.parent.parent.name / path.parent.name


def _put_aside(scan: Scan, end: int, aside: Path) -> str:
    """Move a segment; or cut it, where records before its end still count: it has been copied."""
    path = scan.slot.path
    if not end:
        return _move(path, _folder_of(scan, aside))
    with open(path, "rb+") as handle:
        handle.truncate(end)
        os.fsync(handle.fileno())
    return str(Path(path.parent.name) / path.name)


def _move(path: Path, folder: Path) -> str:
    _make(folder)
    path.rename(folder / path.name)
    fsync_folder(folder)
    fsync_folder(path.parent)
    return str(Path(path.parent.name) / path.name)


def _copy(source: Path, target: Path) -> None:
    """Copy a file or a folder, durable before this returns."""
    if source.is_dir():
        _make(target)
        for each in sorted(source.iterdir()):
            _copy(each, target / each.name)
        return
    _make(target.parent)
    shutil.copy2(source, target)
    with open(target, "rb") as handle:
        os.fsync(handle.fileno())
    fsync_folder(target.parent)


def _make(folder: Path) -> None:
    """Make a folder and those above it, each durable in the one above."""
    if not folder.exists():
        _make(folder.parent)
        folder.mkdir()
        fsync_folder(folder.parent)

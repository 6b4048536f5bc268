"""Back to an earlier step: whatever is newer is put aside, so that a resume ends its replay exactly there.

Nothing is deleted. Segments are cut first, then snapshots are moved, and the hosts' memory is left last, so that a kill
in between leaves a run that resumes as before, or that can be set back again.
"""

from __future__ import annotations

import itertools
import os
import shutil
import time
from collections.abc import Callable
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
        ready: called when it is known that the step can be reached, before anything moves.

    Raises:
        CheckpointError: no whole snapshot and journal lead there.
    """
    found = survey(run)
    lead = _leading(found, step)
    attempt = _attempt(lead, step)
    aside = _unused(run.root / ASIDE, f"{time.strftime('%Y%m%d-%H%M%S')}-after-step-{step}")
    ready()
    moved = [_put_aside(each, step, attempt, aside) for each in found.scans if _is_newer(each, step, attempt)]
    for place in layout.places(run.snapshots):
        if place.step > lead.found.step:
            moved.append(_move(place.path, aside / "snapshots"))
    _leave_memory(run, found, aside)
    moved += [f"{MEMORY}/step-{each:08d}" for each in found.in_memory]
    return Setback(step, lead.found.step, step - lead.found.step, aside if moved else None, tuple(moved))


def _unused(folder: Path, name: str) -> Path:
    names = itertools.chain([name], (f"{name}-{count}" for count in itertools.count(2)))
    return next(folder / each for each in names if not (folder / each).exists())


def _leading(found: Survey, step: int) -> Lead:
    """The newest whole snapshot from which the step can be reached."""
    good = [lead for lead in found.leads if lead.found.problem is None and lead.found.step <= step]
    for lead in good:
        if step <= lead.end:
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


def _attempt(lead: Lead, step: int) -> int:
    """The newest attempt whose records count."""
    taken = [each.attempt for each in lead.covered.steps if each.step == step]
    return taken[0] if taken else lead.base.attempt if lead.base is not None else 0


def _is_newer(scan: Scan, step: int, attempt: int) -> bool:
    """Whether a segment holds anything that must not count any more."""
    last = scan.entries[-1].step if scan.entries else scan.slot.first_step
    return scan.slot.attempt > attempt or last > step or scan.problem is not None


def _leave_memory(run: RunFolder, found: Survey, aside: Path) -> None:
    """A resume must not take up what hosts keep in memory of the way that is left; this host's part is kept on disk."""
    if found.in_memory:
        memory = folder_of_run(run.snapshots)
        _copy(memory, aside / MEMORY)
        leave_memory(run.snapshots)
        shutil.rmtree(memory)
    else:
        leave_memory(run.snapshots)


def _put_aside(scan: Scan, step: int, attempt: int, aside: Path) -> str:
    """Move a segment; or copy it and cut it after the step, where records before it still count."""
    kept = [entry for entry in scan.entries if entry.step <= step and scan.slot.attempt <= attempt]
    path = scan.slot.path
    folder = aside / path.parent.parent.name / path.parent.name
    if not kept:
        return _move(path, folder)
    _copy(path, folder / path.name)
    with open(path, "rb+") as handle:
        handle.truncate(kept[-1].end)
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
    _make(target.parent)
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy2(source, target)
    for path in [target, *target.rglob("*")]:
        _fsync(path)
    fsync_folder(target.parent)


def _fsync(path: Path) -> None:
    if path.is_dir():
        fsync_folder(path)
        return
    with open(path, "rb") as handle:
        os.fsync(handle.fileno())


def _make(folder: Path) -> None:
    """Make a folder and those above it, each durable in the one above."""
    if not folder.exists():
        _make(folder.parent)
        folder.mkdir()
        fsync_folder(folder.parent)

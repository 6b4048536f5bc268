"""What is there to go back to: snapshots, segments, and which steps they lead to together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trainingkit.core.errors import CheckpointError
from trainingkit.core.runfolder import RunFolder
from trainingkit.recovery import jsonstate
from trainingkit.recovery.findings import Found, find
from trainingkit.recovery.journal.cover import Base, Cover, cover, until
from trainingkit.recovery.journal.segments import Scan, scan, slots
from trainingkit.recovery.memory import steps_in_memory
from trainingkit.recovery.writing import rank_file

MARK = "journal"
"""Key of a snapshot's state under which it says which run and attempt made it."""


@dataclass(frozen=True)
class Lead:
    """A snapshot, and how far the journal leads on from it.

    Args:
        base: None where the snapshot is not whole, or was made while no journal was kept. Its ranks are those that
            wrote the journal after it last; the snapshot may be of another number.
    """

    found: Found
    base: Base | None
    covered: Cover

    @property
    def end(self) -> int:
        """The last step that can be reached from here."""
        return self.covered.end or self.found.step

    def reaches(self, step: int) -> bool:
        """Whether a replay from here can end with a step."""
        return step == (until(self.covered, step).end or self.found.step)


@dataclass(frozen=True)
class Survey:
    """Everything that was found.

    Args:
        leads: newest snapshot first.
        in_memory: steps of the snapshots that this host's memory holds, whole or not.
    """

    leads: tuple[Lead, ...]
    scans: tuple[Scan, ...]
    in_memory: tuple[int, ...] = ()

    @property
    def newest(self) -> Lead | None:
        """Where a resume begins; None where no snapshot is whole."""
        return next((lead for lead in self.leads if lead.found.problem is None), None)

    def reach(self) -> list[tuple[int, int]]:
        """Steps that can be gone back to, as first and last of each range, in order."""
        leads = [lead for lead in self.leads if lead.found.problem is None]
        replayed = {each.step for lead in leads for each in lead.covered.steps if each.ends}
        ranges: list[tuple[int, int]] = []
        for step in sorted(replayed | {lead.found.step for lead in leads}):
            if ranges and step == ranges[-1][1] + 1:
                ranges[-1] = (ranges[-1][0], step)
            else:
                ranges.append((step, step))
        return ranges


def survey(run: RunFolder) -> Survey:
    """Look through every snapshot and every segment of a run; nothing is changed."""
    scans = tuple(scan(slot) for slot in slots(run.journal))
    leads = tuple(_lead(found, scans) for found in find(run.snapshots))
    return Survey(leads, scans, tuple(steps_in_memory(run.snapshots)))


def _lead(found: Found, scans: Sequence[Scan]) -> Lead:
    base = base_in(found.path, found.step, found.world_size) if found.problem is None else None
    if base is None:
        return Lead(found, None, Cover((), None, None, ()))
    return max((Lead(found, each, cover(each, scans)) for each in _worlds(base, scans)), key=_newness)


def _worlds(base: Base, scans: Sequence[Scan]) -> list[Base]:
    """The same state for each number of ranks that wrote a journal, that of the snapshot first."""
    sizes = {scan.origin.world_size for scan in scans if scan.origin is not None and scan.origin.run == base.run}
    return [base, *(replace(base, world_size=size) for size in sorted(sizes - {base.world_size}))]


def _newness(lead: Lead) -> int:
    return lead.covered.attempt or 0


def base_in(snapshot: Path, step: int, world_size: int | None) -> Base | None:
    """What a journal must follow to continue a whole snapshot; None where none was kept when it was made."""
    try:
        state = jsonstate.loads((snapshot / rank_file(0)).read_bytes(), where=rank_file(0))
    except (OSError, CheckpointError):
        return None
    mark = state.get(MARK)
    return Base(mark["run"], mark["attempt"], step, world_size or 1) if mark else None

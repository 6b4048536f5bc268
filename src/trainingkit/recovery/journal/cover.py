"""Which steps after a snapshot the journal can replay: every file is looked through, and each message found once.

A step is complete when the messages of all its owners are there, in whichever file, and the ranks say the same of it.
Any one rank's files may be missing or damaged: the neighbour keeps the same messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainingkit.core.errors import CheckpointError
from trainingkit.recovery.journal.delta import patched
from trainingkit.recovery.journal.segments import Entry, Scan

LAG_STEPS = 4
"""A rank whose record ends at most so many steps before the others' was killed before them: all end where it does.
One that ends earlier has lost its file, and the others go on without it."""


@dataclass(frozen=True)
class Base:
    """The state that a replay begins from: a snapshot's.

    Args:
        run: id of the run folder, as the snapshot knows it.
        attempt: that made the snapshot.
        world_size: ranks that made it.
    """

    run: str
    attempt: int
    step: int
    world_size: int


@dataclass(frozen=True)
class Step:
    """One complete step.

    Args:
        shared: what all ranks have in common after it.
        own: rank -> what it alone has after it, of the ranks whose records are there.
        numbers: of this step alone; the same on all ranks.
        entries: rank -> its record.
    """

    step: int
    numbers: Mapping[str, Any]
    shared: Mapping[str, Any]
    own: Mapping[int, Mapping[str, Any]]
    entries: Mapping[int, Entry]

    def blob(self, name: str) -> bytes | None:
        """One blob, from the first rank that has it; None where nobody has."""
        for entry in self.entries.values():
            if name in entry.blobs:
                return entry.blob(name)
        return None


@dataclass(frozen=True)
class Cover:
    """What can be replayed after a base.

    Args:
        steps: complete ones, from the base's next on, without a gap.
        attempt: of the run that wrote them; None where there are none.
        why: what ends them, in words; None where the journal simply ends.
        lost: ranks that have no record of the last step.
    """

    steps: tuple[Step, ...]
    attempt: int | None
    why: str | None
    lost: tuple[int, ...]

    @property
    def end(self) -> int | None:
        """The last step covered."""
        return self.steps[-1].step if self.steps else None


def row_name(bucket: int, row: int) -> str:
    """Name of the blob that holds the message of one owner for one bucket."""
    return f"row/{bucket}/{row}"


def cover(base: Base, scans: Iterable[Scan]) -> Cover:
    """The steps after `base`, of the newest attempt that goes on from it and completed any."""
    found = [scan for scan in scans if scan.origin is not None and _belongs(scan, base)]
    tried = Cover((), None, None, ())
    for attempt in sorted({scan.slot.attempt for scan in found}, reverse=True):
        of_attempt = [scan for scan in found if scan.slot.attempt == attempt]
        if attempt != base.attempt and not _goes_on(of_attempt, base):
            continue
        covered = _cover_attempt(base, attempt, of_attempt)
        if covered.steps:
            return covered
        tried = covered if tried.why is None else tried
    return tried


def _belongs(scan: Scan, base: Base) -> bool:
    origin = scan.origin
    assert origin is not None
    return origin.run == base.run and origin.world_size == base.world_size


def _goes_on(scans: Sequence[Scan], base: Base) -> bool:
    """Whether an attempt began with the state of the base."""
    origins = [scan.origin for scan in scans if scan.origin is not None]
    return any((each.base_step, each.base_attempt) == (base.step, base.attempt) for each in origins)


def _cover_attempt(base: Base, attempt: int, scans: Sequence[Scan]) -> Cover:
    chains = {rank: _chain(base.step, [s for s in scans if s.slot.rank == rank]) for rank in range(base.world_size)}
    ends = {rank: max(chain, default=base.step) for rank, chain in chains.items()}
    last = min((end for end in ends.values() if end >= max(ends.values()) - LAG_STEPS), default=base.step)
    problems = [f"rank {s.slot.rank}'s {s.slot.path.name} is damaged {s.problem}" for s in scans if s.problem]
    steps: list[Step] = []
    why: str | None = None
    for number in range(base.step + 1, last + 1):
        step = _step(number, chains)
        why = _missing(step, base.world_size) if step is not None else f"step {number} is in no file"
        if step is None or why is not None:
            break
        steps.append(step)
    if why is not None and problems:
        why = f"{why}; {problems[0]}"
    lost = tuple(rank for rank in chains if steps and rank not in steps[-1].entries)
    return Cover(tuple(steps), attempt if steps else None, why, lost)


@dataclass(frozen=True)
class _Link:
    entry: Entry
    shared: dict[str, Any]
    own: dict[str, Any]


def _chain(base_step: int, scans: Sequence[Scan]) -> dict[int, _Link]:
    """One rank's records after the base, with the states that their differences add up to."""
    links: dict[int, _Link] = {}
    for scan in sorted(scans, key=lambda scan: scan.slot.first_step):
        shared: dict[str, Any] = {}
        own: dict[str, Any] = {}
        for entry in scan.entries:
            shared = patched(shared, entry.head["shared"])
            own = patched(own, entry.head["own"])
            if entry.step > base_step:
                links[entry.step] = _Link(entry, shared, own)
    return links


def _step(number: int, chains: Mapping[int, Mapping[int, _Link]]) -> Step | None:
    links = {rank: chain[number] for rank, chain in chains.items() if number in chain}
    if not links:
        return None
    first = next(iter(links.values()))
    return Step(
        number,
        first.entry.head["numbers"],
        first.shared,
        {rank: link.own for rank, link in links.items()},
        {rank: link.entry for rank, link in links.items()},
    )


def _missing(step: Step, world_size: int) -> str | None:
    """Why a step cannot be replayed; None where it can."""
    if step.numbers["committed"] and not step.shared["covered"]:
        return f"step {step.step} travelled in a way that the journal does not keep"
    for rank, entry in step.entries.items():
        if entry.head["numbers"] != step.numbers:
            return f"rank {rank} says something else of step {step.step} than rank {next(iter(step.entries))}"
    if not step.numbers["committed"]:
        return None
    have = {name for entry in step.entries.values() for name in entry.blobs}
    for bucket in range(len(step.shared["buckets"])):
        for row in range(world_size):
            if row_name(bucket, row) not in have:
                return f"the message of rank {row} for step {step.step} is in no file"
    return None


def check_reaches(covered: Cover, base: Base, step: int) -> Cover:
    """The part of a cover that ends with `step`.

    Raises:
        CheckpointError: the journal does not reach so far.
    """
    if step < base.step or step > (covered.end or base.step):
        reach = f"steps {base.step} to {covered.end}" if covered.end else f"step {base.step} alone"
        raise CheckpointError(
            "No whole snapshot and journal lead to this step.",
            field="--to-step",
            found=step,
            expected=f"{reach}, after the snapshot of step {base.step}" + (f" ({covered.why})" if covered.why else ""),
            next_step="List what is covered with: trainingkit recover RUN --inspect",
        )
    kept = tuple(each for each in covered.steps if each.step <= step)
    return Cover(kept, covered.attempt if kept else None, None, covered.lost if kept else ())

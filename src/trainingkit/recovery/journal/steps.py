"""The steps in a journal's files: the records of each rank with the states that their differences add up to, and steps
put together from those of all ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainingkit.recovery.journal.delta import patched
from trainingkit.recovery.journal.segments import Entry, Scan


@dataclass(frozen=True)
class Step:
    """One complete step.

    Args:
        shared: what all ranks have in common after it.
        attempt: of the run that took it.
        own: rank -> what it alone has after it, of the ranks whose records are there.
        numbers: of this step alone; the same on all ranks.
        entries: rank -> its record.
    """

    step: int
    attempt: int
    numbers: Mapping[str, Any]
    shared: Mapping[str, Any]
    own: Mapping[int, Mapping[str, Any]]
    entries: Mapping[int, Entry]

    @property
    def ends(self) -> bool:
        """Whether a replay can end with it; with ranks that train apart, only where a round is applied."""
        return bool(self.numbers.get("ends", True))

    def blob(self, name: str) -> bytes | None:
        """One blob, from the first rank that has it; None where nobody has."""
        for entry in self.entries.values():
            if name in entry.blobs:
                return entry.blob(name)
        return None


def row_name(bucket: int, row: int) -> str:
    """Name of the blob that holds the message of one owner for one bucket."""
    return f"row/{bucket}/{row}"


@dataclass(frozen=True)
class Link:
    """One rank's record of a step, with the states after it."""

    entry: Entry
    shared: dict[str, Any]
    own: dict[str, Any]


def chain(base_step: int, scans: Sequence[Scan]) -> dict[int, Link]:
    """One rank's records after the base, with the states that their differences add up to."""
    links: dict[int, Link] = {}
    for scan in sorted(scans, key=lambda scan: scan.slot.first_step):
        shared: dict[str, Any] = {}
        own: dict[str, Any] = {}
        for entry in scan.entries:
            shared = patched(shared, entry.head["shared"])
            own = patched(own, entry.head["own"])
            if entry.step > base_step:
                links[entry.step] = Link(entry, shared, own)
    return links


def step_at(number: int, attempt: int, chains: Mapping[int, Mapping[int, Link]]) -> Step | None:
    """A step of an attempt from all ranks' records; None where nobody has one.

    Args:
        chains: rank -> step -> record.
    """
    links = {rank: chain[number] for rank, chain in chains.items() if number in chain}
    if not links:
        return None
    first = next(iter(links.values()))
    return Step(
        number,
        attempt,
        first.entry.head["numbers"],
        first.shared,
        {rank: link.own for rank, link in links.items()},
        {rank: link.entry for rank, link in links.items()},
    )


def missing(step: Step, world_size: int) -> str | None:
    """Why a step cannot be replayed; None where it can."""
    if step.numbers["committed"] and not step.shared["covered"]:
        return f"step {step.step} travelled in a way that the journal does not keep"
    setting = step.shared.get("unrecorded")
    if step.numbers["committed"] and setting is not None:
        return f"step {step.step} was taken with a setting of the optimizer that the journal could not keep: {setting}"
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

"""Segments that no kept snapshot leads into any more, and their removal."""

from __future__ import annotations

from pathlib import Path

from trainingkit.core.logging import LOG
from trainingkit.recovery.journal.segments import Origin, Slot, slots


def unneeded(journal: Path, origin: Origin, *, oldest_step: int) -> list[Slot]:
    """Segments of this rank that none of the kept snapshots leads into; of a rank that is no more, its heir's, too.

    Of the present attempt those that another of its segments follows at a step that all snapshots have; of earlier
    attempts those, and all of them once every snapshot is newer than the present attempt's beginning. Until then they
    may hold steps that the present attempt did not replay.
    """
    mine = [slot for slot in slots(journal) if _is_heir(origin, slot.rank)]
    begun = min((s.first_step - 1 for s in mine if (s.rank, s.attempt) == (origin.rank, origin.attempt)), default=0)
    gone: list[Slot] = []
    for slot in mine:
        same = [s for s in mine if (s.rank, s.attempt) == (slot.rank, slot.attempt)]
        after = [s.first_step - 1 for s in same if s.first_step > slot.first_step]
        followed = bool(after) and min(after) <= oldest_step
        left_behind = slot.attempt < origin.attempt and oldest_step > begun
        if followed or left_behind:
            gone.append(slot)
    return gone


def _is_heir(origin: Origin, rank: int) -> bool:
    """Whether a rank's segments are looked after by this one: its own, and its share of those of a larger world."""
    return rank == origin.rank or (rank >= origin.world_size and rank % origin.world_size == origin.rank)


def remove(gone: list[Slot]) -> None:
    """Remove segments; one that cannot be is left, and the log says so."""
    for slot in gone:
        try:
            slot.path.unlink(missing_ok=True)
        except OSError as error:
            LOG.warning("an old segment of the journal could not be removed: %s", error)

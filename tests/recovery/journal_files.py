"""Small journals for tests: three ranks, two buckets of tiny messages, written by the real writer."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from trainingkit.recovery.journal import Base, JournalWriter, Origin, Scan, row_name, scan, slots

RANKS = 3
BUCKETS = 2
BASE = Base(run="r", attempt=1, step=10, world_size=RANKS)


def origin(rank: int, **other: Any) -> Origin:
    """A segment that follows `BASE`."""
    mine = Origin(run="r", attempt=1, rank=rank, world_size=RANKS, base_step=10, base_attempt=1)
    return dataclasses.replace(mine, **other)


def message(step: int, bucket: int, row: int) -> bytes:
    """What the owner of a row said; every one is different."""
    return bytes([step, bucket, row]) * 5


def rows_of(step: int, rank: int) -> dict[str, bytes]:
    """What a rank keeps of a step: its own messages and those of the rank before it."""
    kept = {rank, (rank - 1) % RANKS}
    return {row_name(b, row): message(step, b, row) for b in range(BUCKETS) for row in sorted(kept)}


def head_of(step: int, *, first: bool, **numbers: Any) -> dict[str, Any]:
    """A record's head. `shared` and `own` are whole in a segment's first record, differences after it."""
    shared = {"set": {"covered": True, "buckets": [["a"], ["b"]]}} if first else {}
    return {
        "numbers": {"committed": True, "norm": (1.0).hex(), **numbers},
        "shared": shared,
        "own": {"set": {"at": step}},
    }


def write(
    journal: Path, rank: int, steps: Iterable[int], *, numbers: Mapping[int, dict[str, Any]] | None = None, **other: Any
) -> None:
    """One segment of a rank, with these steps; some may have `numbers` of their own."""
    writer = JournalWriter(journal, fsync_s=60.0, queue_bytes=1 << 20)
    begun = origin(rank, **other)
    writer.begin(begun, oldest_step=0)
    for step in steps:
        own = (numbers or {}).get(step, {})
        writer.append(step, head_of(step, first=step == begun.base_step + 1, **own), rows_of(step, rank))
    writer.close()
    assert writer.problems() == []


def scans(journal: Path) -> list[Scan]:
    """All segments, looked through."""
    return [scan(slot) for slot in slots(journal)]

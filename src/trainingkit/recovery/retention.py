"""Which snapshots go, once a new one is durable. Only rank 0 calls this."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainingkit.recovery import layout
from trainingkit.recovery.findings import judge
from trainingkit.recovery.layout import PUBLISHED, Place


@dataclass(frozen=True)
class Removed:
    """A folder that was deleted, and why."""

    step: int
    path: Path
    reason: str


def prune(folder: Path, *, keep: int, just_written: int) -> list[Removed]:
    """Delete good snapshots beyond the newest `keep`, damaged or cut-short ones not newer than the newest good one, and
    earlier versions of a step.

    The snapshot of step `just_written` was read back a moment ago: it counts as good, and stays whatever `keep` says.
    The others are judged by manifest, names and sizes; their contents are not read again at each save.

    Raises:
        OSError: a folder cannot be removed.
    """
    removed: list[Removed] = []
    for place, reason in _unneeded(layout.places(folder), keep, just_written):
        layout.remove(folder, place.step, place.path)
        removed.append(Removed(place.step, place.path, reason))
    return removed


def _unneeded(places: list[Place], keep: int, just_written: int) -> Iterator[tuple[Place, str]]:
    faults = {place: _fault(place, just_written) for place in places}
    good = sorted({place.step for place, fault in faults.items() if fault is None}, reverse=True)
    kept = {*good[:keep], just_written}
    seen: set[int] = set()
    for place, fault in faults.items():
        if fault is not None:
            if place.kind == "removed" or place.step <= good[0]:
                yield place, f"damaged: {fault}"
        elif place.step not in kept:
            yield place, f"older than the newest {keep}"
        elif place.step in seen:
            yield place, "replaced by a later snapshot of the same step"
        else:
            seen.add(place.step)


def _fault(place: Place, just_written: int) -> str | None:
    if place.kind == "removed":
        return "its removal was cut short"
    if place.kind == PUBLISHED and place.step == just_written:
        return None
    return judge(place, contents=False).problem

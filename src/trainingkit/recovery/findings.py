"""Which snapshots are there, and which of them are whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainingkit.recovery import layout, manifest
from trainingkit.recovery.layout import Place
from trainingkit.recovery.manifest import BadManifest
from trainingkit.recovery.misfit import misfit


@dataclass(frozen=True)
class Found:
    """One snapshot.

    Args:
        step: steps that were committed when it was taken (from the folder's name).
        path: its folder.
        problem: None when every file is as the manifest says; otherwise which file, what was found, what was expected.
        world_size: ranks that took part; None when the manifest cannot be read.
        unfinished: it never was a snapshot: it is being written, or its writing was cut short.
    """

    step: int
    path: Path
    problem: str | None
    world_size: int | None = None
    unfinished: bool = False


def find(folder: Path) -> list[Found]:
    """All snapshots below `folder`, newest first; every file of each is read and checked.

    A folder that is being written, or whose writing was cut short, is listed with that problem.
    """
    return list(_judged(folder))


def newest_good(folder: Path) -> tuple[Found | None, list[Found]]:
    """The newest snapshot that is whole, and the damaged or unfinished ones that are newer. Older ones are not read."""
    passed_over: list[Found] = []
    for found in _judged(folder):
        if found.problem is None:
            return found, passed_over
        passed_over.append(found)
    return None, passed_over


def judge(place: Place, *, contents: bool = True) -> Found:
    """Check one folder; `contents=False` compares names and sizes only, which reads next to nothing."""
    if place.kind == "partial":
        return Found(place.step, place.path, "it is being written, or its writing was cut short", unfinished=True)
    try:
        listed = manifest.read(place.path)
    except BadManifest as error:
        return Found(place.step, place.path, f"{manifest.MANIFEST}: {error}")
    wrong = misfit(place.path, listed)
    if wrong is not None:
        return Found(place.step, place.path, wrong)
    problem = manifest.mismatch(place.path, listed, checksums_of=None if contents else set())
    return Found(place.step, place.path, problem, listed.world_size)


def _judged(folder: Path) -> Iterator[Found]:
    return (judge(place) for place in layout.places(folder) if place.kind != "removed")

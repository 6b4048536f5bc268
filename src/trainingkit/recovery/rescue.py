"""After a restart: a snapshot that lies in the memory of the hosts is put together on disk, where it is newer.

From there on it is a snapshot as any other: verified, restored, and pruned by the same code.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainingkit.core.files import crc32_of, fsync_folder
from trainingkit.recovery import layout, manifest
from trainingkit.recovery.findings import newest_good
from trainingkit.recovery.manifest import BadManifest, Manifest
from trainingkit.recovery.together import agree
from trainingkit.recovery.writing import Target, publish, told

DOING = "looking for a snapshot in memory"


@dataclass(frozen=True)
class Held:
    """What a host's memory has of one snapshot: the manifest's text, and where files are that are as it says."""

    step: int
    text: str
    files: dict[str, Path]


def rescue(target: Target, memory: Path, *, sweeps: bool, former: Sequence[Path] = ()) -> tuple[int, int] | None:
    """Put the newest snapshot together that memory has all files of, if disk has none as new; then empty memory.

    Args:
        memory: as `memory.folder_of_run` gives it.
        former: of the run before it was set back; only emptied.
        sweeps: whether this rank empties this host's memory; one rank of each host.

    Returns:
        Its step, and the step of the newest whole one on disk (0: none); None where disk has as new a one.

    Raises:
        CheckpointError: it cannot be written; memory is left as it is.
    """
    found = agree(target.group, lambda: _held(memory), doing=DOING)
    on_disk = agree(target.group, lambda: _newest_step(target), doing=DOING)[0]
    chosen = _newest_whole(found)
    if chosen is None or chosen.step <= on_disk:
        _sweep(target, (memory, *former), sweeps)
        return None
    agree(target.group, lambda: _begin(target, chosen), doing=DOING)
    agree(target.group, lambda: _copy_own(target, chosen, found), doing=DOING)
    agree(target.group, lambda: _finish(target, chosen), doing=DOING)
    _sweep(target, (memory, *former), sweeps)
    return chosen.step, on_disk


def _held(memory: Path) -> list[Held]:
    return [held for path in sorted(memory.glob("rank-*/step-*")) if (held := _checked(path)) is not None]


def _checked(path: Path) -> Held | None:
    try:
        listed = manifest.read(path)
    except BadManifest:
        return None
    files = {name: path / name for name, record in listed.files.items() if _is_whole(path / name, record)}
    return Held(listed.step, manifest.render(listed), files)


def _is_whole(path: Path, record: manifest.FileRecord) -> bool:
    try:
        return path.stat().st_size == record.bytes and crc32_of(path) == record.crc32
    except OSError:
        return False


def _newest_step(target: Target) -> int:
    if target.rank != 0:
        return 0
    good, _ = newest_good(target.folder)
    return good.step if good else 0


def _newest_whole(found: Sequence[Iterable[Held]]) -> Manifest | None:
    """Of all snapshots whose every file is somewhere, the newest; the same on all ranks."""
    names: dict[tuple[int, str], set[str]] = {}
    for holdings in found:
        for held in holdings:
            names.setdefault((held.step, held.text), set()).update(held.files)
    for (_, text), there in sorted(names.items(), reverse=True):
        listed = manifest.parse(text.encode())
        if there >= set(listed.files):
            return listed
    return None


def _begin(target: Target, chosen: Manifest) -> None:
    if target.rank == 0:
        with told(target.folder, chosen.total_bytes):
            target.folder.mkdir(parents=True, exist_ok=True)
            layout.discard(target.folder, chosen.step)
            layout.begin(target.folder, chosen.step)


def _copy_own(target: Target, chosen: Manifest, found: Sequence[Sequence[Held]]) -> None:
    """Each file by the first rank whose host has it."""
    text = manifest.render(chosen)
    partial = layout.aside(target.folder, chosen.step, "partial")
    with told(target.folder, chosen.total_bytes):
        for name in chosen.files:
            holders = [rank for rank, held in enumerate(found) if any(h.text == text and name in h.files for h in held)]
            if holders[0] == target.rank:
                source = next(h.files[name] for h in found[target.rank] if h.text == text and name in h.files)
                shutil.copyfile(source, partial / name)
                with open(partial / name, "rb+") as handle:
                    os.fsync(handle.fileno())
        fsync_folder(partial)


def _finish(target: Target, chosen: Manifest) -> None:
    if target.rank == 0:
        with told(target.folder, chosen.total_bytes):
            publish(target, chosen)


def _sweep(target: Target, folders: Sequence[Path], sweeps: bool) -> None:
    def empty() -> None:
        for folder in folders if sweeps else ():
            shutil.rmtree(folder, ignore_errors=True)

    agree(target.group, empty, doing=DOING)

"""Snapshots in memory: a rank's files of one snapshot, and those of the rank before it, in this host's RAM.

They are the very files that a snapshot on disk has. Processes may die and hosts stay: then all of it is there. A host
may die: then the files of its ranks are in the memory of their neighbours, on other hosts where ranks lie so.

    BASE/<run>/rank-R/step-00000120/   own files, the neighbour's, and the manifest of the whole snapshot
    BASE/<run>/rank-R/.partial/        being written

<run> is in a file beside the run's snapshots, below a line that says which folder the file was written for: its inode,
and the id of its file system. In a copy of a run folder that is another one, so the copy has no memory; a folder that
was renamed keeps it, one that was moved to another file system does not. (The id is statvfs's and not the device's
number, which differs between hosts that mount the same network file system.) A run that is set back gets another <run>
(`leave_memory`), so that no host's memory brings the way back that was left; the lines that follow are the names it had
before.
"""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup

from trainingkit.core.files import write_atomic
from trainingkit.recovery import diskspace, layout, manifest, store
from trainingkit.recovery.manifest import FileRecord, Manifest
from trainingkit.recovery.together import agree, peer_lost
from trainingkit.recovery.writing import Job, Target, finish_own, needed_bytes, sizes, told

BASE = Path("/dev/shm")
"""Linux' own file system in memory."""
ID_FILE = ".memory-id"
PARTIAL = ".partial"

Files = dict[str, FileRecord]


def folder_of_run(snapshots: Path, *, base: Path = BASE) -> Path:
    """Where a run's snapshots in memory are, on each of its hosts. A run folder that is made anew, or copied from
    another, has another one.

    Raises:
        OSError: the run's identity cannot be read or written.
    """
    if not _names(snapshots):
        _write_names(snapshots, [uuid.uuid4().hex])
    return _folders(snapshots, base)[0]


def has_memory(snapshots: Path) -> bool:
    """Whether a run ever kept snapshots in memory, in this very folder."""
    return bool(_names(snapshots))


def former_folders(snapshots: Path, *, base: Path = BASE) -> list[Path]:
    """Where a run's snapshots in memory were before it was set back. Nothing in them counts any more."""
    return _folders(snapshots, base)[1:]


def leave_memory(snapshots: Path) -> None:
    """What hosts have in memory of this run does not count from now on. Raises OSError."""
    names = _names(snapshots)
    if names:
        _write_names(snapshots, [uuid.uuid4().hex, *names])


def _folders(snapshots: Path, base: Path) -> list[Path]:
    return [base / f"trainingkit-{name}" for name in _names(snapshots)]


def _names(snapshots: Path) -> list[str]:
    """Names that this run has, the newest first; none where the file is that of another folder."""
    path = snapshots / ID_FILE
    words = path.read_text(encoding="ascii").split() if path.exists() else []
    return words[1:] if words[:1] == [_identity(snapshots)] else []


def _write_names(snapshots: Path, names: Sequence[str]) -> None:
    write_atomic(snapshots / ID_FILE, "\n".join([_identity(snapshots), *names]))


def _identity(snapshots: Path) -> str:
    """Of a folder: the same after a rename and on every host that mounts it, another one for a copy."""
    return f"{os.statvfs(snapshots).f_fsid:x}:{snapshots.stat().st_ino}"


def left_in_memory(snapshots: Path, *, base: Path = BASE) -> bool:
    """Whether this host's memory holds a snapshot of the run, whole or not."""
    return bool(steps_in_memory(snapshots, base=base))


def steps_in_memory(snapshots: Path, *, base: Path = BASE) -> list[int]:
    """Steps of the run's snapshots that this host's memory holds, whole or not, in order."""
    found = {layout.step_of(path) for folder in _folders(snapshots, base)[:1] for path in folder.glob("rank-*/step-*")}
    return sorted(step for step in found if step is not None)


def write_in_memory(target: Target, memory: Path, job: Job) -> None:
    """Keep the snapshot of `job.step` in memory, in place of the one before. Collective over `target.group`.

    Raises:
        CheckpointError: on every rank when any rank fails; on survivors when one is lost. What was kept before stays.
    """
    doing = f"keeping the snapshot of step {job.step} in memory"
    needed = needed_bytes(agree(target.group, lambda: sizes(job), doing=doing))
    own = memory / f"rank-{target.rank}"
    partial = own / PARTIAL
    agree(target.group, lambda: _begin(partial, needed), doing=doing)
    tensors = store.write(partial, job.tensors, target.group, needed_bytes=needed)
    parts = agree(target.group, lambda: finish_own(target, job, partial, tensors, needed), doing=doing)
    received = _from_neighbour(target, partial, parts)
    agree(target.group, lambda: _put(partial, received, needed), doing=doing)
    made_s = agree(target.group, time.time, doing=doing)[0]
    whole = Manifest(job.step, target.world_size, made_s, {n: r for part in parts for n, r in part.items()})
    agree(target.group, lambda: _publish(own, whole), doing=doing)
    for old in own.glob("step-*"):
        if old.name != f"step-{job.step:08d}":
            shutil.rmtree(old, ignore_errors=True)


def _begin(partial: Path, needed: int) -> None:
    with told(partial, needed):
        if partial.exists():
            shutil.rmtree(partial)
        partial.mkdir(parents=True)
        diskspace.require(partial, needed)


def _from_neighbour(target: Target, partial: Path, parts: Sequence[Files]) -> dict[str, torch.Tensor]:
    """Each rank's files go to the next rank. Those of the rank before, by name: [bytes] uint8."""
    group = target.group
    if group is None or target.world_size == 1:
        return {}
    before, after = ((target.rank + shift) % target.world_size for shift in (-1, 1))
    incoming = {name: torch.empty(record.bytes, dtype=torch.uint8) for name, record in parts[before].items()}
    outgoing = [_bytes_of(partial / name) for name in parts[target.rank]]
    try:
        waits = [dist.irecv(buffer, _global(group, before), group) for buffer in incoming.values()]
        waits += [dist.isend(buffer, _global(group, after), group) for buffer in outgoing]
        for wait in waits:
            if wait is not None:
                wait.wait()
    except RuntimeError as error:
        raise peer_lost("keeping a snapshot in memory", error) from error
    return incoming


def _put(partial: Path, received: dict[str, torch.Tensor], needed: int) -> None:
    with told(partial, needed):
        for name, buffer in received.items():
            (partial / name).write_bytes(buffer.numpy().tobytes())


def _global(group: ProcessGroup, rank: int) -> int:
    return dist.get_global_rank(group, rank)


def _bytes_of(path: Path) -> torch.Tensor:
    return torch.from_numpy(np.fromfile(path, dtype=np.uint8))


def _publish(own: Path, whole: Manifest) -> None:
    with told(own, whole.total_bytes):
        partial = own / PARTIAL
        write_atomic(partial / manifest.MANIFEST, manifest.render(whole))
        final = layout.published(own, whole.step)
        if final.exists():
            shutil.rmtree(final)
        partial.rename(final)

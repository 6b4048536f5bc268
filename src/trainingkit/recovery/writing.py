"""Writing one snapshot, from an empty folder to the manifest. All ranks run this, each in its writer thread.

    1. rank 0 checks the room and makes the partial folder
    2. every rank writes its tensors (DCP) and its JSON, fsyncs, and tells size and CRC-32 of what went into each file
    3. rank 0 compares sizes with what is in the folder, writes the manifest, renames the folder, removes old snapshots

Between two stages the ranks exchange their results; a failure on one ends the save on all, and the partial folder goes.
"""

from __future__ import annotations

import contextlib
import re
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor
from torch.distributed import ProcessGroup

from trainingkit.core.errors import CheckpointError
from trainingkit.core.files import fsync_folder, write_atomic
from trainingkit.core.logging import LOG
from trainingkit.recovery import diskspace, layout, manifest, retention, store
from trainingkit.recovery.findings import judge
from trainingkit.recovery.layout import PUBLISHED, Place
from trainingkit.recovery.manifest import FileRecord, Manifest
from trainingkit.recovery.together import agree

SHARED = "shared.json"
HEADER_BYTES = 256
"""Room for one tensor's entry in a safetensors header, twice over; for the estimate of what a snapshot needs."""
_OWNED = re.compile(r"rank-(\d+)/")


@dataclass(frozen=True)
class Target:
    """Where snapshots go and who writes them."""

    folder: Path
    keep: int
    rank: int
    world_size: int
    group: ProcessGroup | None


@dataclass(frozen=True)
class Job:
    """What one rank adds to one snapshot.

    Args:
        tensors: staged copies, by name.
        texts: JSON documents, by file name.
        problem: why this rank has nothing to add. The save then fails on all ranks, before anything is written.
    """

    step: int
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    problem: Exception | None = None


def rank_file(rank: int) -> str:
    """Name of a rank's JSON document."""
    return f"rank-{rank}.json"


def owner_of(name: str) -> int | None:
    """The one rank that a tensor name belongs to (`rank-3/...` -> 3), or None when all ranks share it."""
    match = _OWNED.match(name)
    return int(match[1]) if match else None


def write_snapshot(target: Target, job: Job) -> None:
    """Make the snapshot of `job.step` durable, then prune. Collective over `target.group`.

    Raises:
        CheckpointError: on every rank when any rank fails; on survivors when one is lost. Earlier snapshots stay.
    """
    doing = f"saving the snapshot of step {job.step}"
    needed = needed_bytes(agree(target.group, lambda: sizes(job), doing=doing))
    partial = layout.aside(target.folder, job.step, "partial")
    try:
        agree(target.group, _on_rank_0(target, lambda: _begin(target, job, needed), needed), doing=doing)
        tensors = store.write(partial, job.tensors, target.group, needed_bytes=needed)
        parts = agree(target.group, lambda: finish_own(target, job, partial, tensors, needed), doing=doing)
        files = {name: record for part in parts for name, record in part.items()}
        made = Manifest(job.step, target.world_size, time.time(), files)
        agree(target.group, _on_rank_0(target, lambda: publish(target, made), needed), doing=doing)
    except CheckpointError:
        if target.rank == 0:
            with contextlib.suppress(OSError):
                layout.discard(target.folder, job.step)
        raise
    if target.rank == 0:
        _prune(target, job.step)


def needed_bytes(sizes: list[tuple[int, int, int]]) -> int:
    """Bytes of a snapshot, at most, from the `sizes` of each rank. Raises CheckpointError for different steps."""
    steps = [step for step, _, _ in sizes]
    if len(set(steps)) > 1:
        raise CheckpointError(
            "The ranks save different steps.",
            field="step",
            found=steps,
            expected="one step",
            next_step="Call save for the same steps on every rank.",
        )
    return max(shared for _, shared, _ in sizes) + sum(own for _, _, own in sizes)


def sizes(job: Job) -> tuple[int, int, int]:
    """The step, the bytes of the tensors that ranks share, and those of what this rank alone writes."""
    if job.problem is not None:
        raise job.problem
    shared = sum(t.nbytes + HEADER_BYTES for name, t in job.tensors.items() if owner_of(name) is None)
    own = sum(t.nbytes + HEADER_BYTES for name, t in job.tensors.items() if owner_of(name) is not None)
    return job.step, shared, own + sum(len(text) for text in job.texts.values())


def _on_rank_0(target: Target, task: Callable[[], object], needed_bytes: int) -> Callable[[], None]:
    def run() -> None:
        if target.rank == 0:
            with told(target.folder, needed_bytes):
                task()

    return run


@contextlib.contextmanager
def told(folder: Path, needed_bytes: int) -> Iterator[None]:
    """Context that turns an OSError into the NotWritten that a person can act on."""
    try:
        yield
    except OSError as error:
        raise diskspace.write_error(error, folder, needed_bytes) from error


def _begin(target: Target, job: Job, needed_bytes: int) -> None:
    target.folder.mkdir(parents=True, exist_ok=True)
    layout.discard(target.folder, job.step)
    diskspace.require(target.folder, needed_bytes)
    layout.begin(target.folder, job.step)


def finish_own(
    target: Target, job: Job, partial: Path, tensors: Mapping[str, FileRecord], needed_bytes: int
) -> dict[str, FileRecord]:
    """Write this rank's JSON beside its `tensors`. Returns what went into all its files, by name."""
    raws = {name: text.encode() for name, text in job.texts.items()}
    with told(target.folder, needed_bytes):
        for name, raw in raws.items():
            write_atomic(partial / name, raw)
        fsync_folder(partial)
    texts = {name: FileRecord(len(raw), zlib.crc32(raw)) for name, raw in raws.items()}
    return {**tensors, **texts}


def publish(target: Target, made: Manifest) -> None:
    """Give a partial folder its manifest and its name. Raises CheckpointError for other files in it, and OSError."""
    step = made.step
    partial = layout.aside(target.folder, step, "partial")
    problem = manifest.mismatch(partial, made, checksums_of=set())
    if problem is not None:
        raise CheckpointError(
            f"The files of a new snapshot are not those that were written: {problem}.",
            field="snapshots",
            found=str(partial),
            expected="a folder that all ranks share and nobody else writes to",
            next_step="Put the run folder on storage that every host sees.",
        )
    write_atomic(partial / manifest.MANIFEST, manifest.render(made))
    old = Place(step, PUBLISHED, layout.published(target.folder, step))
    layout.publish(target.folder, step, old_is_good=old.path.exists() and judge(old).problem is None)


def _prune(target: Target, step: int) -> None:
    try:
        for removed in retention.prune(target.folder, keep=target.keep, just_written=step):
            LOG.info("removed %s: %s", removed.path.name, removed.reason)
    except OSError as error:
        LOG.warning("an old snapshot could not be removed: %s", error)

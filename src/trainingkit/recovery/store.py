"""Tensors in a folder of safetensors files, through torch.distributed.checkpoint (DCP) and its Hugging Face storage.

Nothing here is pickled to disk: with `save_distributed` that storage writes only safetensors, each rank its own files.
A tensor that several ranks hold under one name is written once, by one of them.

Making a file's bytes holds Python's lock, so that a training thread which needs it waits. Files are therefore small;
one tensor that is larger than `FILE_BYTES` still is one file. They go past the page cache (`core.directio`).
"""

from __future__ import annotations

import contextlib
import io
import os
import warnings
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystem
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.planner import WriteItem
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from trainingkit.core.directio import DirectWriter
from trainingkit.core.errors import CheckpointError
from trainingkit.recovery.diskspace import write_error
from trainingkit.recovery.manifest import FileRecord
from trainingkit.recovery.together import peer_lost

FILE_BYTES = 16 << 20
"""Tensors of so many bytes go into one file."""


@dataclass(frozen=True)
class TensorSpec:
    """Shape and dtype of one stored tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    def __str__(self) -> str:
        return f"{list(self.shape)} {str(self.dtype).removeprefix('torch.')}"


def spec_of(tensor: Tensor) -> TensorSpec:
    """Shape and dtype of a tensor in memory."""
    return TensorSpec(tuple(tensor.shape), tensor.dtype)


def write(
    folder: Path, tensors: Mapping[str, Tensor], group: ProcessGroup | None, *, needed_bytes: int
) -> dict[str, FileRecord]:
    """Write this rank's share, fsynced. All ranks of `group` call it.

    Args:
        tensors: contiguous, on the CPU, no two sharing storage.
        group: None for a single process; `expect_single_process_notice` is then called before, on the main thread.
        needed_bytes: for the message when the disk is full.

    Returns:
        Size and checksum of what went into each of this rank's files, by name.

    Raises:
        CheckpointError: on every rank when one of them fails, and on the survivors when a peer is lost.
    """
    writer = _SmallFiles(str(folder), save_distributed=True)
    writer.fs = past_the_cache = _PastTheCache()
    planner = DefaultSavePlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    try:
        save(dict(tensors), storage_writer=writer, planner=planner, process_group=group, no_dist=group is None)
    except CheckpointException as error:
        raise _write_failed(error, folder.parent, needed_bytes) from error
    except RuntimeError as error:
        raise peer_lost("writing a snapshot", error) from error
    return past_the_cache.written


def read(folder: Path, tensors: Mapping[str, Tensor], group: ProcessGroup | None) -> None:
    """Fill `tensors` in place; shapes and dtypes must be those that `describe` gives. All ranks of `group` call it.

    Raises:
        CheckpointError: a file cannot be read, or a peer is lost.
    """
    expect_single_process_notice()
    reader = HuggingFaceStorageReader(str(folder))
    planner = DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    try:
        load(dict(tensors), storage_reader=reader, planner=planner, process_group=group, no_dist=group is None)
    except CheckpointException as error:
        raise _failed(error, folder, "read", "Use the snapshot before it, or try again.") from error
    except RuntimeError as error:
        raise peer_lost("reading a snapshot", error) from error


def describe(folder: Path) -> dict[str, TensorSpec]:
    """Shape and dtype of every tensor in a snapshot that was verified, by name, of all ranks."""
    metadata = HuggingFaceStorageReader(str(folder)).read_metadata().state_dict_metadata
    return {name: TensorSpec(tuple(entry.size), entry.properties.dtype) for name, entry in metadata.items()}  # pyright: ignore[reportAttributeAccessIssue]


def expect_single_process_notice() -> None:
    """DCP warns at each call without a process group that it works alone, which is what was asked for."""
    warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable or uninitialized")


class _SmallFiles(HuggingFaceStorageWriter):
    """Spreads what a rank writes over files of about `FILE_BYTES`."""

    def _split_by_storage_plan(
        self, storage_plan: dict[str, int] | None, items: list[WriteItem]
    ) -> dict[int, list[WriteItem]]:
        files: dict[int, list[WriteItem]] = {}
        number, filled = 1, 0
        for item in items:
            size = item.tensor_storage_size() or 0
            if filled and filled + size > FILE_BYTES:
                number, filled = number + 1, 0
            files.setdefault(number, []).append(item)
            filled += size
        return files


class _PastTheCache(FileSystem):
    """The file system as DCP sees it. `written`: what went into each file that was written directly, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.written: dict[str, FileRecord] = {}

    @contextlib.contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Generator[io.IOBase]:
        """A stream to a file, for "wb" a direct one."""
        if mode != "wb":
            with super().create_stream(path, mode) as stream:
                yield stream
            return
        with DirectWriter(Path(path)) as direct:
            yield direct
            self.written[Path(path).name] = FileRecord(direct.tell(), direct.crc32)


def _write_failed(error: CheckpointException, folder: Path, needed_bytes: int) -> CheckpointError:
    _, cause = _first_cause(error)
    if isinstance(cause, OSError):
        return write_error(cause, folder, needed_bytes)
    return _failed(error, folder, "written", "Mend the cause and resume; earlier snapshots are intact.")


def _failed(error: CheckpointException, folder: Path, done: str, next_step: str) -> CheckpointError:
    rank, cause = _first_cause(error)
    return CheckpointError(
        f"The tensors of a snapshot could not be {done}: {type(cause).__name__} on rank {rank}: {cause}",
        field="snapshots",
        found=str(folder),
        expected="safetensors files in a folder that all ranks see",
        next_step=next_step,
    )


def _first_cause(error: CheckpointException) -> tuple[int, BaseException]:
    """DCP collects the failures of all ranks in a BaseException; the lowest rank's is told."""
    rank, (cause, _) = min(error.failures.items(), key=lambda item: item[0])
    return rank, cause

"""Saving while training goes on: copy now, write in a thread, report a failure at the next call."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from trainingkit.core.errors import CheckpointError, ConfigError
from trainingkit.core.logging import LOG
from trainingkit.recovery import jsonstate, store
from trainingkit.recovery.memory import write_in_memory
from trainingkit.recovery.staging import Staging
from trainingkit.recovery.together import unforeseen
from trainingkit.recovery.writing import SHARED, Job, Target, owner_of, rank_file, write_snapshot


class Snapshots:
    """Writes the snapshots of one run. Every rank has one, and calls `save` for the same steps in the same order.

    Args:
        folder: `RunFolder.snapshots`, seen by all ranks.
        keep: how many whole snapshots stay, at least 1. While one is written, room for one more is needed.
        rank, world_size: this process among those that save together.
        group: a Gloo process group used for nothing else (its collectives run in the writer thread); None for a single
            process. A lost peer is noticed within the group's timeout.

    Raises:
        ConfigError: `keep` is below 1.
    """

    def __init__(
        self, folder: Path, *, keep: int, rank: int = 0, world_size: int = 1, group: ProcessGroup | None = None
    ) -> None:
        if keep < 1:
            raise ConfigError(
                "At least one snapshot must be kept.",
                field="snapshot.keep",
                found=keep,
                expected="1 or more",
                next_step="Set snapshot.keep = 1.",
            )
        assert group is not None or world_size == 1, "a process group goes with several ranks"
        self._target = Target(folder, keep, rank, world_size, group)
        self._staging = Staging()
        self._thread: threading.Thread | None = None
        self._error: CheckpointError | None = None

    def save(
        self,
        step: int,
        tensors: Mapping[str, Tensor],
        state: Mapping[str, Any],
        *,
        shared: Mapping[str, Any] | None = None,
        wait: bool = False,
        memory: Path | None = None,
    ) -> float:
        """Copy everything and return; a thread writes. If an earlier save is still running, wait for it first.

        Args:
            step: steps committed so far; the folder's name. A snapshot of the same step is replaced.
            tensors: by name. A name that several ranks use is one tensor, equal on all of them, and is written once;
                names that begin with `rank-{rank}/` are this rank's own.
            state: this rank's state without tensors (see `jsonstate` for what it may hold).
            shared: state that is equal on all ranks; rank 0's is kept.
            wait: return only when the snapshot is durable.
            memory: keep it there (see `recovery.memory`) and not on disk.

        Returns:
            Seconds that the copies took (waiting for an earlier save not included).

        Raises:
            CheckpointError: an earlier save failed (this one is then not started); the state has no JSON form, a name
                is another rank's or a tensor is not dense (all ranks are told); or with `wait` this save failed.
        """
        self.wait()
        start = time.perf_counter()
        job = self._job(step, tensors, state, shared or {})
        store.expect_single_process_notice()
        self._thread = threading.Thread(target=self._write, args=(job, memory), name="snapshot-writer")
        self._thread.start()
        staging_s = time.perf_counter() - start
        if wait or job.problem is not None:
            self.wait()
        return staging_s

    def wait(self) -> None:
        """Until the save that is running, if any, is durable. Raises its error, once."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    def check(self) -> None:
        """Raise the error of a save that has ended meanwhile, once; do not wait for one that still runs."""
        if self._thread is not None and not self._thread.is_alive():
            self.wait()

    @property
    def target(self) -> Target:
        """Where they go and who writes them."""
        return self._target

    @property
    def writing(self) -> bool:
        """Whether a save is under way."""
        return self._thread is not None and self._thread.is_alive()

    def close(self) -> None:
        """Finish what is running and free the copies. Raises the error of the last save."""
        try:
            self.wait()
        finally:
            self._staging = Staging()

    def __enter__(self) -> Snapshots:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _job(
        self, step: int, tensors: Mapping[str, Tensor], state: Mapping[str, Any], shared: Mapping[str, Any]
    ) -> Job:
        """What there is to write; a refusal becomes part of it, because the other ranks wait for an answer."""
        try:
            self._check(tensors)
            texts = {rank_file(self._target.rank): jsonstate.dumps(state, where="state")}
            if self._target.rank == 0:
                texts[SHARED] = jsonstate.dumps(shared, where="shared")
            return Job(step, self._staging.copy(tensors), texts)
        except Exception as problem:
            return Job(step, problem=problem)

    def _write(self, job: Job, memory: Path | None) -> None:
        try:
            if memory is None:
                write_snapshot(self._target, job)
            else:
                write_in_memory(self._target, memory, job)
        except CheckpointError as error:
            self._error = error
        except BaseException as error:  # handed over, not swallowed: DCP's own errors are no Exceptions
            self._error = unforeseen(error)
            self._error.__cause__ = error
        if self._error is not None:
            LOG.error("snapshot of step %d: %s", job.step, self._error, exc_info=self._error.__cause__)

    def _check(self, tensors: Mapping[str, Tensor]) -> None:
        for name, tensor in tensors.items():
            if owner_of(name) not in (None, self._target.rank):
                raise CheckpointError(
                    "A tensor name belongs to another rank.",
                    field="tensors",
                    found=name,
                    expected=f"rank-{self._target.rank}/... or a name without a rank",
                    next_step="Save a tensor under the number of the rank that has it.",
                )
            if tensor.layout is not torch.strided or tensor.is_meta:
                raise CheckpointError(
                    "Only dense tensors with data can be saved.",
                    field=name,
                    found="a meta tensor" if tensor.is_meta else str(tensor.layout),
                    expected="torch.strided",
                    next_step="Make it dense, or leave it out.",
                )

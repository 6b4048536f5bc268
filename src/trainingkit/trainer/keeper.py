"""Snapshots of a whole run: what goes in, when they are taken, and how a run continues from one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from trainingkit.core.errors import CheckpointError
from trainingkit.recovery import (
    Found,
    Snapshots,
    attach_tensors,
    detach_tensors,
    load_new,
    newest_good,
    restore_training,
    training_tensors,
)
from trainingkit.recovery.together import agree
from trainingkit.sync.contract import Sync
from trainingkit.trainer.advice import no_whole_snapshot
from trainingkit.trainer.engine import Rate
from trainingkit.trainer.rng import random_state, set_random_state
from trainingkit.trainer.sections import SnapshotSection
from trainingkit.trainer.session import Session


class Keeper:
    """Saves and restores model, optimizer, schedule, synchroniser, random state and whatever else it is given.

    Args:
        say: told of anything a person should know (a damaged snapshot that was passed over).
    """

    def __init__(
        self,
        session: Session,
        section: SnapshotSection,
        *,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        rate: Rate | None,
        sync: Sync,
        say: Callable[[str], None],
    ) -> None:
        self._session = session
        self._every = section.every
        self._model = model
        self._optimizer = optimizer
        self._rate = rate
        self._sync = sync
        self._say = say
        self.saved_step = 0
        self._snapshots = Snapshots(
            session.run.snapshots,
            keep=section.keep,
            rank=session.rank,
            world_size=session.world_size,
            group=session.snapshot_group,
        )

    def due(self, step: int) -> bool:
        """True when the recipe asks for a snapshot after this step."""
        return self._every > 0 and step % self._every == 0

    def save(self, step: int, extra: dict[str, Any], *, wait: bool = False) -> None:
        """Take a snapshot of the state after `step`, whose buffers are aligned; `extra` is this rank's JSON state.

        Raises:
            CheckpointError: this save, or the one before, failed.
        """
        tensors, rest = training_tensors(self._model, self._optimizer)
        sync_tensors, sync = detach_tensors(self._sync.state_dict(), f"rank-{self._session.rank}/sync")
        tensors |= sync_tensors
        state = {
            "training": rest,
            "rate": self._rate.state_dict() if self._rate else None,
            "sync": sync,
            "random": random_state(),
            **extra,
        }
        self._snapshots.save(step, tensors, state, wait=wait)
        self.saved_step = step

    def check(self) -> None:
        """Raise the CheckpointError of a save that has failed meanwhile; does not wait."""
        self._snapshots.check()

    def restore(self) -> tuple[int, dict[str, Any]] | None:
        """Continue from the newest whole snapshot: its step and this rank's state; None when none was ever finished.

        Raises:
            CheckpointError: there are finished snapshots but none is whole.
        """
        session = self._session
        good, damaged = agree(session.snapshot_group, self._choose, doing="choosing a snapshot")[0]
        for found in damaged:
            how = "was not finished" if found.unfinished else "is damaged"
            self._say(f"Snapshot of step {found.step} {how} and was passed over: {found.problem}")
        if good is None:
            if any(not found.unfinished for found in damaged):
                raise no_whole_snapshot(session.run, damaged)
            return None
        tensors, state = load_new(
            good.path, rank=session.rank, world_size=session.world_size, group=session.snapshot_group
        )
        if not state:
            raise CheckpointError(
                "The snapshot was made by fewer ranks than this run has.",
                field="workers",
                found=f"{session.world_size} ranks; rank {session.rank} has no state in {good.path.name}",
                expected="the number of ranks that made the snapshot",
                next_step="Resume with that many workers.",
            )
        restore_training(self._model, self._optimizer, tensors, state["training"])
        if self._rate is not None and state["rate"] is not None:
            self._rate.load_state_dict(state["rate"])
        self._sync.load_state_dict(attach_tensors(state["sync"], tensors))
        set_random_state(state["random"])
        self.saved_step = good.step
        return good.step, state

    def _choose(self) -> tuple[Found | None, list[Found]]:
        """Rank 0 looks for the newest whole snapshot; its choice counts on all ranks."""
        return newest_good(self._session.run.snapshots) if self._session.rank == 0 else (None, [])

    def close(self) -> None:
        """Wait until the last snapshot is durable. Raises CheckpointError."""
        self._snapshots.wait()
        self._snapshots.close()

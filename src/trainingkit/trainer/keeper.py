"""Snapshots of a whole run: what goes in, when they are taken, and how a run continues from one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from trainingkit.core.errors import CheckpointError
from trainingkit.recovery import Found, Snapshots, load_new, newest_good, restore_training, training_tensors
from trainingkit.recovery.together import agree
from trainingkit.sync.contract import Sync, TrainsApart
from trainingkit.sync.every.handover import is_apart
from trainingkit.trainer import apart
from trainingkit.trainer.advice import no_whole_snapshot
from trainingkit.trainer.engine import Rate
from trainingkit.trainer.rng import random_state, set_random_state
from trainingkit.trainer.sections import SnapshotSection
from trainingkit.trainer.session import Session


class Keeper:
    """Saves and restores model, optimizer, schedule, synchroniser, random state and whatever else it is given.

    Args:
        say: told (event, text) of anything a person should know, such as a damaged snapshot that was passed over.
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
        say: Callable[[str, str], None],
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
        training, rest = training_tensors(self._model, self._optimizer)
        tensors, sync = apart.stored(training, self._sync.state_dict(), self._session.rank)
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
            self._say("damaged", f"Snapshot of step {found.step} {how} and was passed over: {found.problem}")
        if good is None:
            if any(not found.unfinished for found in damaged):
                raise no_whole_snapshot(session.run, damaged)
            return None
        old = good.world_size or session.world_size
        tensors, state = self._read(good, session.rank % old)
        trains_apart = is_apart(state["sync"])
        if session.rank >= old and not trains_apart:
            raise CheckpointError(
                "The snapshot was made by fewer ranks than this run has.",
                field="workers",
                found=f"{session.world_size} ranks; rank {session.rank} has no state in {good.path.name}",
                expected="the number of ranks that made the snapshot",
                next_step="Resume with that many workers.",
            )
        kept = apart.read_back(tensors, state, session.rank % old)
        if trains_apart and (old != session.world_size or not isinstance(self._sync, TrainsApart)):
            now = (session.rank, session.world_size)
            kept, text = apart.hand_over(lambda rank: self._read(good, rank), old, now, self._sync)
            self._say("resume", text)
        restore_training(self._model, self._optimizer, kept.training, kept.rest)
        if self._rate is not None and state["rate"] is not None:
            self._rate.load_state_dict(state["rate"])
        self._sync.load_state_dict(kept.sync)
        if session.rank < old:
            set_random_state(state["random"])
        self.saved_step = good.step
        return good.step, state

    def _read(self, found: Found, rank: int) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """What a snapshot holds for a rank of those that made it. All ranks call it, each for any rank."""
        session = self._session
        group = session.snapshot_group
        return load_new(found.path, rank=session.rank, world_size=session.world_size, group=group, of=rank)

    def _choose(self) -> tuple[Found | None, list[Found]]:
        """Rank 0 looks for the newest whole snapshot; its choice counts on all ranks."""
        return newest_good(self._session.run.snapshots) if self._session.rank == 0 else (None, [])

    def close(self) -> None:
        """Wait until the last snapshot is durable. Raises CheckpointError."""
        self._snapshots.wait()
        self._snapshots.close()

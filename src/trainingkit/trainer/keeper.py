"""Snapshots of a whole run: what goes in, when they are taken, and how a run continues from one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from trainingkit.core import decisions, records
from trainingkit.core.units import format_seconds, parse_seconds
from trainingkit.recovery import Found, Snapshots, load_new, newest_good, restore_training, training_tensors
from trainingkit.recovery.diskspace import NotWritten
from trainingkit.recovery.interval import between_failures_s
from trainingkit.recovery.memory import folder_of_run, former_folders, has_memory
from trainingkit.recovery.rescue import rescue
from trainingkit.recovery.together import agree
from trainingkit.recovery.writing import told
from trainingkit.sync.contract import Sync, TrainsApart
from trainingkit.sync.every.handover import is_apart
from trainingkit.trainer import apart, failures, resized
from trainingkit.trainer.advice import no_whole_snapshot
from trainingkit.trainer.cadence import make_cadence
from trainingkit.trainer.engine import Rate
from trainingkit.trainer.resized import begin_random
from trainingkit.trainer.rng import random_state, set_random_state
from trainingkit.trainer.sections import SnapshotSection
from trainingkit.trainer.session import Session


class Keeper:
    """Saves and restores model, optimizer, schedule, synchroniser, random state and whatever else it is given.

    Args:
        seed: of the run, for random numbers of ranks that a snapshot does not know.
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
        seed: int,
        say: Callable[[str, str], None],
    ) -> None:
        self._session = session
        self._seed = seed
        self._model = model
        self._optimizer = optimizer
        self._rate = rate
        self._sync = sync
        self._say = say
        self.saved_step = 0
        self._memory_every = section.memory_every
        self._memory: Path | None = None
        self._cadence = make_cadence(
            section.every,
            between_failures_s=lambda: self._between_failures_s(section),
            decides=session.rank == 0,
            tell=self._tell_interval,
        )
        self._snapshots = Snapshots(
            session.run.snapshots,
            keep=section.keep,
            rank=session.rank,
            world_size=session.world_size,
            group=session.snapshot_group,
        )

    def wants(self) -> bool:
        """Whether this rank asks the others for a snapshot after the step that is under way."""
        return self._cadence.wants()

    def due(self, step: int, step_s: float, *, agreed: bool) -> bool:
        """True when the recipe asks for a snapshot after this step, which took `step_s`; or a rank did (`agreed`)."""
        self._cadence.stepped(step_s, writing=self._snapshots.writing)
        return self._cadence.due(step, agreed=agreed)

    def due_in_memory(self, step: int) -> bool:
        """True when the recipe asks for a snapshot in memory after this step."""
        return self._memory is not None and step % self._memory_every == 0

    def save(self, step: int, extra: dict[str, Any], *, wait: bool = False, in_memory: bool = False) -> None:
        """Take a snapshot of the state after `step`, whose buffers are aligned; `extra` is this rank's JSON state.

        That the disk refused the one before is said, and this one tries again.

        Raises:
            CheckpointError: this save failed and `wait` was asked for, or one failed in a way that comes again.
        """
        self._hear_of_last(self._snapshots.wait)
        training, rest = training_tensors(self._model, self._optimizer)
        tensors, sync = apart.stored(training, self._sync.state_dict(), self._session.rank)
        state = {
            "training": rest,
            "rate": self._rate.state_dict() if self._rate else None,
            "sync": sync,
            "random": random_state(),
            **extra,
        }
        if in_memory:
            self._snapshots.save(step, tensors, state, memory=self._memory)
            return
        self._cadence.saved(self._snapshots.save(step, tensors, state, wait=wait))
        self.saved_step = step

    def check(self) -> None:
        """Say that the disk refused a save meanwhile; raise a CheckpointError of another kind; does not wait."""
        self._hear_of_last(self._snapshots.check)

    def _hear_of_last(self, ask: Callable[[], None]) -> None:
        try:
            ask()
        except NotWritten as error:
            self._say("snapshot", f"{error.problem} Found: {error.found}. Training goes on; the next save tries again.")

    def restore(self) -> tuple[int, dict[str, Any]] | None:
        """Continue from the newest whole snapshot: its step and this rank's state; None when none was ever finished.

        Raises:
            CheckpointError: there are finished snapshots but none is whole.
        """
        session = self._session
        self._look_in_memory()
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
        kept = apart.read_back(tensors, state, session.rank % old)
        kept = self._taken_over(good, old, kept)
        restore_training(self._model, self._optimizer, kept.training, kept.rest)
        if self._rate is not None and state["rate"] is not None:
            self._rate.load_state_dict(state["rate"])
        self._sync.load_state_dict(kept.sync)
        if session.rank < old:
            set_random_state(state["random"])
        else:
            begin_random(self._seed, session.rank, good.step)
        self.saved_step = good.step
        return good.step, state

    def _taken_over(self, good: Found, old: int, kept: apart.Restored) -> apart.Restored:
        """What this rank goes on with where the snapshot is of another number of ranks, or of another way to agree."""
        rank, ranks = self._session.rank, self._session.world_size
        if is_apart(kept.sync):
            apart_too = isinstance(self._sync, TrainsApart) and self._sync.goes_on_from(kept.sync)
            if old == ranks and apart_too:
                return kept
            kept, text = apart.hand_over(lambda each: self._read(good, each), old, (rank, ranks), self._sync)
        elif old != ranks:
            sync = resized.hand_over(lambda each: self._read(good, each, f"rank-{each}/"), old, ranks)
            kept, text = replace(kept, sync=sync), resized.told(old, ranks)
        else:
            return kept
        self._say("resume", text)
        return kept

    def _read(self, found: Found, rank: int, only: str = "") -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """What a snapshot holds for a rank of those that made it. All ranks call it, each for any rank."""
        session = self._session
        place = {"rank": session.rank, "world_size": session.world_size, "group": session.snapshot_group}
        return load_new(found.path, **place, of=rank, only=only)

    def _choose(self) -> tuple[Found | None, list[Found]]:
        """Rank 0 looks for the newest whole snapshot; its choice counts on all ranks."""
        return newest_good(self._session.run.snapshots) if self._session.rank == 0 else (None, [])

    def _look_in_memory(self) -> None:
        """Where snapshots are kept in memory, and whether a newer one is left there than any on disk; also where none
        are kept any more.
        """
        session, target = self._session, self._snapshots.target
        memory, former = agree(target.group, self._memory_folders, doing="opening the memory")[0]
        if memory is None:
            return
        self._memory = memory if self._memory_every else None
        try:
            found = rescue(target, memory, sweeps=session.place.local_rank == 0, former=former)
        except NotWritten as error:
            self._say("snapshot", f"{error.problem} Found: {error.found}. A snapshot in memory was not used.")
            return
        if found is not None:
            step, on_disk = found
            older = f"the newest on disk was of step {on_disk}" if on_disk else "there was none on disk"
            self._say("snapshot", f"Snapshot of step {step} was put together from the hosts' memory: {older}.")

    def _memory_folders(self) -> tuple[Path | None, list[Path]]:
        """Where this run's are, and where they were before it was set back. Rank 0 knows; None where there are none."""
        target = self._snapshots.target
        if target.rank != 0 or not (self._memory_every or has_memory(target.folder)):
            return None, []
        with told(target.folder, 0):
            target.folder.mkdir(parents=True, exist_ok=True)
            return folder_of_run(target.folder), former_folders(target.folder)

    def _between_failures_s(self, section: SnapshotSection) -> float:
        """By what is stated and what the run's records tell."""
        found, _ = records.read_records(self._session.run.metrics(self._session.rank))
        stated_s = parse_seconds(section.mtbf, field="snapshot.mtbf")
        return between_failures_s(stated_s, *failures.seen(found, attempt=self._session.attempt))

    def _tell_interval(self, interval_s: float, reason: str) -> None:
        self._say("snapshot", f"A snapshot every {format_seconds(interval_s)} from here on: {reason}.")
        run, step = self._session.run, self.saved_step
        with run.written():
            decisions.record(run.decisions, step=step, choice="snapshot interval", value=interval_s, reason=reason)

    def close(self) -> None:
        """Wait until the last snapshot is durable. Raises CheckpointError."""
        self._snapshots.wait()
        self._snapshots.close()
        if self._memory is not None and self._session.place.local_rank == 0:
            shutil.rmtree(self._memory, ignore_errors=True)

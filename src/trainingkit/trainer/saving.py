"""A loop's snapshots and its journal, side by side: what is saved when it begins, after each step, and at its end.

Whatever is written down of a step follows a state that comes back: a snapshot, or what earlier attempts wrote down
after one. So a run may die again at any moment and still goes on from its last completed step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trainingkit.recovery.diskspace import NotWritten
from trainingkit.recovery.journal import MARK
from trainingkit.trainer.buffers import ModelBuffers
from trainingkit.trainer.engine import StepResult
from trainingkit.trainer.journalling import Journalling
from trainingkit.trainer.keeper import Keeper
from trainingkit.trainer.recorder import Recorder
from trainingkit.trainer.replaying import Replayed


class Saving:
    """Saves one loop.

    Args:
        journal: None where none is kept.
        extra: gives this rank's place in the data and what else the loop keeps.
        fixed: what each snapshot keeps, too, and no step changes.
    """

    def __init__(
        self,
        keeper: Keeper,
        journal: Journalling | None,
        buffers: ModelBuffers,
        recorder: Recorder,
        extra: Callable[[], dict[str, Any]],
        *,
        fixed: Mapping[str, Any],
    ) -> None:
        self._keeper = keeper
        self._journal = journal
        self._buffers = buffers
        self._recorder = recorder
        self._extra = extra
        self._fixed = dict(fixed)

    def begin(self, step: int, restored: Mapping[str, Any] | None, replayed: Replayed | None) -> None:
        """The loop goes on after `step`.

        Args:
            restored: the state with which it was resumed; None for a new run.
            replayed: what the journal added to it.

        Raises:
            CheckpointError: a new run's first snapshot could not be written.
        """
        if self._journal is None:
            if replayed is not None:
                self.save(step, wait=False)
            return
        followed = self._journal.follows(restored or {})
        if restored is None:
            self.save(step, wait=True)
        elif followed is None:
            self._save_if_possible(step)
        elif replayed is None:
            self._journal.begin(step, base_attempt=followed)
        else:
            self._journal.begin(step, base_attempt=replayed.attempt)
            self._snapshot(step, wait=False)

    def stepped(self, step: int, result: StepResult) -> None:
        """Write a step down."""
        if self._journal is not None:
            self._journal.step(step, result, self._extra())

    def save_in_memory(self, step: int) -> None:
        """Take a snapshot into the hosts' memory, if one is due there."""
        if self._keeper.due_in_memory(step):
            self._buffers.align()
            self._keeper.save(step, self._state(), in_memory=True)

    def save(self, step: int, *, wait: bool) -> None:
        """Take a snapshot; the journal goes on in a segment that follows it.

        Raises:
            CheckpointError: as `Keeper.save`.
        """
        self._snapshot(step, wait=wait)
        if self._journal is not None:
            self._journal.saved(step)

    def close(self) -> None:
        """End the journal. Snapshots end with the keeper."""
        if self._journal is not None:
            self._journal.close()

    def _save_if_possible(self, step: int) -> None:
        """The snapshot that the run was resumed from does not know the journal: one that does must be there first."""
        try:
            self.save(step, wait=True)
        except NotWritten as error:
            text = f"{error.problem} Found: {error.found}. The journal begins with the next snapshot."
            self._recorder.event(step, "snapshot", text)

    def _snapshot(self, step: int, *, wait: bool) -> None:
        self._buffers.align()
        self._keeper.save(step, self._state(), wait=wait)
        self._recorder.event(step, "snapshot", f"Snapshot of step {step}.", show=False)

    def _state(self) -> dict[str, Any]:
        return self._extra() | self._fixed | ({} if self._journal is None else {MARK: self._journal.mark})

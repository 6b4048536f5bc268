"""The loop's parts in one object: for the recipe trainer, and for a loop of one's own (`trainingkit.attach`).

    with tk.attach(model, optimizer, "kit.toml") as kit:
        for batch in kit.batches(loader):
            loss = kit.step(loss_fn, batch)

`kit.step` takes one micro-batch; every `step.accumulate`-th completes an optimizer step. Signals, snapshots, records
and progress happen inside it, at the border between two steps. How a loop ends is in `trainer.ending`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any

import torch
from torch import nn

from trainingkit.core.datainfo import DataInfo
from trainingkit.core.errors import StepError
from trainingkit.core.runfolder import RunFolder
from trainingkit.core.stateful import Stateful
from trainingkit.sync.contract import Sync
from trainingkit.sync.control import ControlLane
from trainingkit.trainer.apart import agreed_weights, never_meet, settle
from trainingkit.trainer.assembling import assemble, go_on
from trainingkit.trainer.building import describe_model
from trainingkit.trainer.datamark import data_mark
from trainingkit.trainer.ending import Ending, exit_code_of, is_plain_exit
from trainingkit.trainer.engine import LossFn, Rate, StepResult
from trainingkit.trainer.evaluate import evaluate
from trainingkit.trainer.exempted import nothing_squeezed
from trainingkit.trainer.loss import call_model, to_device
from trainingkit.trainer.moving import watch_moves
from trainingkit.trainer.passes import Passes
from trainingkit.trainer.phases import PhaseClock
from trainingkit.trainer.recipe import KitConfig
from trainingkit.trainer.recorder import Recorder
from trainingkit.trainer.retaking import Loop
from trainingkit.trainer.saving import Saving
from trainingkit.trainer.session import Session
from trainingkit.trainer.skipping import Skipping, read_skips
from trainingkit.trainer.stops import StopRequest


class Kit:
    """A training loop's machinery over one model and optimizer.

    Args:
        model: on the session's device; it is wrapped for several ranks, use `kit.model`.
        rate: a learning-rate schedule stepped once per committed step, or None.
        data: facts about the data, for the page and for bits per byte.
        on_close: called on rank 0 with the run folder when the loop has ended well.

    Attributes:
        step_number: optimizer steps done so far, earlier attempts included.
        stopped: what ended the loop early (the name of a signal, or a file), or None.
        journal: what is written down of each step, or None.
        replayed: what the journal added to the snapshot that the run goes on from, or None.
    """

    def __init__(
        self,
        session: Session,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        config: KitConfig,
        *,
        rate: Rate | None = None,
        data: DataInfo | None = None,
        on_close: Callable[[RunFolder], object] | None = None,
    ) -> None:
        self.session = session
        self.stopped: str | None = None
        self._moved = False
        self._total = config.run.steps
        self._data = data
        self._module = model
        self._stop = StopRequest(session.run.stop)
        self._clock = PhaseClock()
        self._notes: list[tuple[str, str]] = []
        self._kept: dict[str, Stateful] = {}
        parts = assemble(session, model, optimizer, config, rate=rate, clock=self._clock, say=self._note)
        self._engine, self._keeper, self._buffers = parts.engine, parts.keeper, parts.buffers
        self.journal = parts.journal
        loop = Loop(parts.sync, model, optimizer, rate, parts.buffers)
        begun = go_on(session, config, parts.keeper, loop, self._note, data=data)
        self.step_number, self.replayed, self._restored = begun.step, begun.replayed, begun.state
        self._recorder = Recorder(
            session, start_step=self.step_number, total=self._total, log_every=config.run.log_every
        )
        fixed = data_mark(data)
        self._saving = Saving(self._keeper, self.journal, self._buffers, self._recorder, self._extra, fixed=fixed)
        self._tell_beginning(parts.sync)
        lane = ControlLane(session.control_group, width=1)
        self._passes = Passes(
            endless=self._total is not None,
            saved=self._restored,
            finished=lambda: self.finished,
            lane=lane,
            clock=self._clock,
            ranks=session.world_size,
            say=self.event,
        )
        self._ending = Ending(
            session,
            engine=self._engine,
            keeper=self._keeper,
            recorder=self._recorder,
            stop=self._stop,
            lane=lane,
            on_close=on_close,
        )
        self._skipping = Skipping(
            read_skips(session.run),
            accumulate=config.step.accumulate,
            before=lambda: self.step_number + 1 if self._engine.between_steps and not self.finished else None,
            say=self.event,
        )
        self._saving.begin(self.step_number, self._restored, self.replayed)
        self._stop.install()

    @property
    def model(self) -> nn.Module:
        """The model to call in `loss_fn` (wrapped, where there are several ranks)."""
        return self._engine.sync.module

    @property
    def rank(self) -> int:
        """This process's rank."""
        return self.session.rank

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.session.world_size

    @property
    def device(self) -> torch.device:
        """Where batches are put."""
        return self.session.device

    @property
    def finished(self) -> bool:
        """True when the loop should end: all steps done, or a stop was agreed."""
        return self._engine.between_steps and (self.stopped is not None or self._all_done)

    @property
    def _all_done(self) -> bool:
        return self._total is not None and self.step_number >= self._total

    @property
    def exit_code(self) -> int:
        """What a script should end with: 0, or 75 after a stop on request."""
        return exit_code_of(self.stopped)

    def keep(self, name: str, thing: Stateful) -> None:
        """Save `thing`'s state (JSON values) in every snapshot; in a resumed run, restore it now."""
        self._kept[name] = thing
        saved = (self._restored or {}).get("kept", {})
        if name in saved:
            thing.load_state_dict(saved[name])

    def epochs(self, count: int) -> Iterator[int]:
        """Numbers of the epochs that are left of `count`, from 0 on; a resumed run goes on in the epoch where it stood.

        Example:
            for epoch in kit.epochs(10):
                for batch in kit.batches(loader):
                    kit.step(loss_fn, batch)

        An epoch that was stopped in its middle is yielded again after a resume, with the batches that are left of it;
        what the loop does at an epoch's end happens once in the state that counts. A plain `range` begins at 0 again.
        """
        yield from self._passes.epochs(count)

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        """The loader's batches on the device, from where the run stood, until `finished`.

        With `run.steps` the loader is walked as often as needed. Without, or inside `epochs`, it is walked once, and
        the walk ends on all ranks where the shortest loader ends; to agree on that costs one small exchange a
        micro-batch. With several ranks each needs a part of the data of its own, as from a DistributedSampler.
        """
        for batch in self._skipping.walk(self._passes.batches(loader)):
            with self._clock.phase("input"):
                placed = to_device(batch, self.session.device)
            yield placed
        self._ending.drop_half_step(self.step_number, "The data ended")

    def step(self, loss_fn: LossFn, batch: Any) -> float:
        """Forward and backward of one micro-batch; the last of a step also commits or aborts it.

        Args:
            loss_fn: `loss_fn(model, batch)` returns the mean loss over the batch.

        Returns:
            The loss of the step that was just completed, or NaN inside a step with accumulation.

        Raises:
            StepError: no usable loss, or too many aborted steps in a row.
            PeerLost: another rank is gone; the step may have been applied here and not there. Go on from a snapshot.
            CheckpointError: an earlier snapshot could not be written.
        """
        if self._ending.done:
            raise StepError("The kit is closed.", next_step="Call kit.step before kit.close().")
        result = self._engine.micro_batch(loss_fn, batch, self._asks)
        if result is None:
            return float("nan")
        self._after_step(result)
        return result.loss

    def evaluate(self, batches: Iterable[Any], loss_fn: LossFn = call_model) -> dict[str, float]:
        """Metrics over this rank's share of validation batches, summed over ranks. All ranks call it.

        Args:
            loss_fn: as for `step`; by default the model is called on the batch and returns the loss.
        """
        begin = time.perf_counter()
        with self._clock.excluded(), agreed_weights(self._engine.sync):
            self._buffers.align()
            metrics, samples = evaluate(
                self._module,
                batches,
                loss_fn=loss_fn,
                info=self._data,
                group=self.session.group,
                compute=self.session.compute,
                device=self.session.device,
            )
        self._recorder.evaluation(self.step_number, metrics, samples, time.perf_counter() - begin)
        return metrics

    def settle(self) -> bool:
        """Bring all ranks to one model, where they train apart, as the end of a loop does. All ranks call it.

        Returns:
            Whether that changed the model.
        """
        moved = settle(self._engine.sync, self.event)
        self._moved = self._moved or moved
        return moved

    def event(self, event: str, text: str) -> None:
        """A mark in the page and a line on the screen."""
        self._recorder.event(self.step_number, event, text)

    def close(self) -> None:
        """End the loop well: save what is not saved, leave the outcome, release everything. Safe to call twice."""
        if self._ending.done:
            return
        self._ending.drop_half_step(self.step_number, "The loop ended")
        if self.stopped is None:
            self.settle()
        if self._moved or self.step_number > self._keeper.saved_step:
            self._save(wait=True)
        self._saving.close()
        self._ending.well(self.step_number, stopped=self.stopped)

    def fail(self, error: BaseException) -> None:
        """End the loop badly: leave the outcome; no collective, no save."""
        self._ending.badly(self.step_number, error)
        self._saving.close()

    def __enter__(self) -> Kit:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and not is_plain_exit(error):
            self.fail(error)
            return
        try:
            self.close()
        except BaseException as late:
            self.fail(late)
            raise

    def _note(self, event: str, text: str) -> None:
        self._notes.append((event, text))

    def _tell_beginning(self, sync: Sync) -> None:
        self._recorder.start(model=describe_model(self._module), data=self._data, sync=sync.describe())
        self._say_notes()
        if self._restored:
            self.event("resume", self._resume_text())
        watch_moves(sync, self.session, self._recorder, resumed=self._restored is not None)
        nothing = nothing_squeezed(sync, self._module)
        if nothing:
            self.event("codec", nothing)
        alone = never_meet(sync, self._total)
        if alone:
            self.event("sync", alone)

    def _resume_text(self) -> str:
        if self._all_done:
            over = f"step {self.step_number} is done, and run.steps is {self._total}"
            return f"Nothing left to do: {over}. Raise it to train on."
        return f"Continuing after step {self.step_number}."

    def _after_step(self, result: StepResult) -> None:
        self.step_number += 1
        if result.agreed[0] > 0:
            self.stopped = self._stop.requested or "a request to another rank"
        step_s, phases = self._clock.lap()
        self._recorder.step(self.step_number, result, step_s, phases)
        for text in result.stats.events:
            self.event("sync", text)
        self._saving.stepped(self.step_number, result)
        self._say_notes()
        if self._all_done and self.stopped is None:
            self.settle()
        self._engine.check_aborts()
        self._keeper.check()
        due = self._keeper.due(self.step_number, step_s, agreed=result.agreed[1] > 0)
        if self.stopped or due:
            self._save(wait=self.stopped is not None)
        else:
            self._saving.save_in_memory(self.step_number)
        self._say_notes()

    def _save(self, *, wait: bool) -> None:
        self._saving.save(self.step_number, wait=wait)
        self._moved = False

    def _asks(self) -> list[float]:
        """What this rank wants of the others: to stop, to save."""
        return [1.0 if self._stop.asked() else 0.0, 1.0 if self._keeper.wants() else 0.0]

    def _extra(self) -> dict[str, Any]:
        """This rank's place in the data, and what else the loop keeps; what nobody has asked back yet goes along."""
        waiting = (self._restored or {}).get("kept", {})
        kept = {**waiting, **{name: thing.state_dict() for name, thing in self._kept.items()}}
        return {**self._passes.state_dict(), "kept": kept}

    def _say_notes(self) -> None:
        notes, self._notes[:] = list(self._notes), []
        for event, text in notes:
            self._recorder.event(self.step_number, event, text)

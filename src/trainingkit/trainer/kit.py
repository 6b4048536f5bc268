"""The loop's parts in one object: for the recipe trainer, and for a loop of one's own (`trainingkit.attach`).

    with tk.attach(model, optimizer, "kit.toml") as kit:
        for batch in kit.batches(loader):
            loss = kit.step(loss_fn, batch)

`kit.step` takes one micro-batch; every `step.accumulate`-th completes an optimizer step. Signals, snapshots, records
and progress happen inside it, at the border between two steps.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any

import torch
from torch import nn

from trainingkit.core import exitcodes
from trainingkit.core.datainfo import DataInfo
from trainingkit.core.errors import PeerLost, StepError
from trainingkit.core.files import write_atomic
from trainingkit.core.logging import LOG
from trainingkit.core.outcome import Outcome, failed
from trainingkit.core.runfolder import RunFolder
from trainingkit.core.stateful import Stateful
from trainingkit.sync.control import ControlLane, peers_watched
from trainingkit.trainer.buffers import ModelBuffers
from trainingkit.trainer.building import describe_model, make_engine, make_sync
from trainingkit.trainer.engine import LossFn, Rate, StepResult
from trainingkit.trainer.evaluate import evaluate
from trainingkit.trainer.feed import Feed
from trainingkit.trainer.keeper import Keeper
from trainingkit.trainer.loss import call_model, to_device
from trainingkit.trainer.phases import PhaseClock
from trainingkit.trainer.recipe import KitConfig, resolved_text
from trainingkit.trainer.recorder import Recorder
from trainingkit.trainer.session import Session
from trainingkit.trainer.stops import StopRequest

_END = object()


class Kit:
    """A training loop's machinery over one model and optimizer.

    Args:
        model: on the session's device; it is wrapped for several ranks, use `kit.model`.
        rate: a learning-rate schedule stepped once per committed step, or None.
        data: facts about the data, for the page and for bits per byte.
        on_close: called on rank 0 with the run folder when the loop has ended well.

    Attributes:
        step_number: optimizer steps done so far, earlier attempts included.
        stopped: name of the signal that ended the loop early, or None.
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
        self.step_number = 0
        self.stopped: str | None = None
        self._total = config.run.steps
        self._data = data
        self._on_close = on_close
        self._module = model
        self._stop = StopRequest()
        self._clock = PhaseClock()
        self._feed: Feed | None = None
        self._data_lane = ControlLane(session.control_group, width=1)
        self._closed = False
        self._notes: list[str] = []
        self._kept: dict[str, Stateful] = {}
        sync = make_sync(model, session, config)
        self._buffers = ModelBuffers(model, session.group)
        self._engine = make_engine(
            model, optimizer, session, config, sync=sync, rate=rate, clock=self._clock, buffers=self._buffers
        )
        self._keeper = Keeper(
            session,
            config.snapshot,
            model=model,
            optimizer=optimizer,
            rate=rate,
            sync=sync,
            say=self._notes.append,
        )
        self._restored = self._restore(config)
        self._recorder = Recorder(
            session, start_step=self.step_number, total=self._total, log_every=config.run.log_every
        )
        self._recorder.start(model=describe_model(model), data=data, sync=sync.describe())
        for note in self._notes:
            self._recorder.event(self.step_number, "damaged", note)
        if self._restored:
            self._recorder.event(self.step_number, "resume", f"Continuing after step {self.step_number}.")
        self._feed_state: dict[str, Any] | None = (self._restored or {}).get("feed")
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
        return exitcodes.PREEMPTED if self.stopped else exitcodes.DONE

    def keep(self, name: str, thing: Stateful) -> None:
        """Save `thing`'s state (JSON values) in every snapshot; in a resumed run, restore it now."""
        self._kept[name] = thing
        saved = (self._restored or {}).get("kept", {})
        if name in saved:
            thing.load_state_dict(saved[name])

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        """The loader's batches on the device, from where the run stood, until `finished`.

        With `run.steps` the loader is walked as often as needed. Without, it is walked once, and the loop ends on all
        ranks where the shortest loader ends; to agree on that costs one small exchange a micro-batch.
        """
        self._feed = Feed(loader, passes=None if self._total is not None else 1)
        if self._feed_state is not None:
            self._feed.load_state_dict(self._feed_state)
            self._feed_state = None
        batches = iter(self._feed)
        self._clock.restart()
        while not self.finished:
            with self._clock.phase("input"):
                batch = next(batches, _END)
            if not self._all_have(batch):
                break
            with self._clock.phase("input"):
                batch = to_device(batch, self.session.device)
            yield batch
        self._drop_half_step("The data ended")

    def step(self, loss_fn: LossFn, batch: Any) -> float:
        """Forward and backward of one micro-batch; the last of a step also commits or aborts it.

        Args:
            loss_fn: `loss_fn(model, batch)` returns the mean loss over the batch.

        Returns:
            The loss of the step that was just completed, or NaN inside a step with accumulation.

        Raises:
            StepError: no usable loss, or too many aborted steps in a row.
            PeerLost: another rank is gone; nothing of this step was applied.
            CheckpointError: an earlier snapshot could not be written.
        """
        if self._closed:
            raise StepError("The kit is closed.", next_step="Call kit.step before kit.close().")
        result = self._engine.micro_batch(loss_fn, batch, lambda: [1.0 if self._stop.requested else 0.0])
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
        with self._clock.excluded():
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

    def event(self, event: str, text: str) -> None:
        """A mark in the page and a line on the screen."""
        self._recorder.event(self.step_number, event, text)

    def close(self) -> None:
        """End the loop well: save what is not saved, leave the outcome, release everything. Safe to call twice."""
        if self._closed:
            return
        self._drop_half_step("The loop ended")
        if self.step_number > self._keeper.saved_step:
            self._save(wait=True)
        self._keeper.close()
        if self.stopped:
            text = f"Stopped by {self.stopped} after step {self.step_number}; the state is saved."
            self._recorder.event(self.step_number, "preempted", text, show=False)
        status = "preempted" if self.stopped else "done"
        Outcome(self.rank, status, self.exit_code, self.step_number).write(self.session.run)
        self._wait_for_outcomes()
        self._release()
        if self._on_close is not None and self.rank == 0:
            self._on_close(self.session.run)

    def fail(self, error: BaseException) -> None:
        """End the loop badly: leave the outcome; no collective, no save."""
        if self._closed:
            return
        self._closed = True
        self._stop.restore()
        self._engine.close()
        failed(self.rank, self.step_number, error).write(self.session.run)
        LOG.error("the loop failed after step %d", self.step_number, exc_info=error)
        self.session.on_close()
        with contextlib.suppress(StepError):
            self._recorder.event(self.step_number, "error", str(error) or type(error).__name__, show=False)
        with contextlib.suppress(OSError):
            self._recorder.close()

    def __enter__(self) -> Kit:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and not _is_plain_exit(error):
            self.fail(error)
            return
        try:
            self.close()
        except BaseException as late:
            self.fail(late)
            raise

    def _restore(self, config: KitConfig) -> dict[str, Any] | None:
        with peers_watched():
            restored = self._keeper.restore()
        if restored is None:
            if self.rank == 0 and not self.session.run.recipe.exists():
                write_atomic(self.session.run.recipe, resolved_text(config))
            return None
        self.step_number, state = restored
        return state

    def _after_step(self, result: StepResult) -> None:
        self.step_number += 1
        if result.agreed[0] > 0:
            self.stopped = self._stop.requested or "a signal to another rank"
        step_s, phases = self._clock.lap()
        self._recorder.step(self.step_number, result, step_s, phases)
        self._engine.check_aborts()
        self._keeper.check()
        if self.stopped or self._keeper.due(self.step_number):
            self._save(wait=self.stopped is not None)

    def _save(self, *, wait: bool) -> None:
        feed = self._feed.state_dict() if self._feed else self._feed_state
        self._buffers.align()
        kept = {name: thing.state_dict() for name, thing in self._kept.items()}
        self._keeper.save(self.step_number, {"feed": feed, "kept": kept}, wait=wait)
        self._recorder.event(self.step_number, "snapshot", f"Snapshot of step {self.step_number}.", show=False)

    def _all_have(self, batch: Any) -> bool:
        """True when every rank has a batch for the next micro-step."""
        here = batch is not _END
        if self._total is not None:
            return here
        with self._clock.phase("stall"):
            self._data_lane.start([0.0 if here else 1.0])
            without = self._data_lane.finish()[0]
        if here and without:
            self._recorder.event(self.step_number, "leftover", "Another rank's data ended; a batch here was not used.")
        return without == 0

    def _drop_half_step(self, why: str) -> None:
        if not self._engine.between_steps:
            self._engine.cancel()
            text = f"{why} in mid-step; the last micro-batches were not used."
            self._recorder.event(self.step_number, "leftover", text)

    def _wait_for_outcomes(self) -> None:
        """Until every rank has left its outcome, so that whoever judges the run sees all of them."""
        with contextlib.suppress(PeerLost):
            self._data_lane.start([0.0])
            self._data_lane.finish()

    def _release(self) -> None:
        self._closed = True
        self._engine.close()
        self._engine.sync.close()
        self._recorder.close()
        self._stop.restore()
        self.session.close()


def _is_plain_exit(error: BaseException) -> bool:
    """`sys.exit()` inside the loop, with a code that is no failure."""
    return isinstance(error, SystemExit) and error.code in (None, exitcodes.DONE, exitcodes.PREEMPTED)

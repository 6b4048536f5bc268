"""One optimizer step as a transaction: begin, forward and backward per micro-batch, then commit or abort.

begin               buffers are remembered and aligned, the synchroniser prepares
forward, backward   of each micro-batch; the last one exchanges gradients
agree               the gradient's norm is the same bits on all ranks, so all ranks judge alike
commit              clip, update, advance the schedule
abort               (the norm is not finite) parameters, buffers, optimizer and schedule stay as they were

Where ranks train apart (`sync.every`), gradients and norm are a rank's own: it judges alone, and the schedule goes on.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn

from trainingkit.core.errors import StepError
from trainingkit.precision.compute import forward_context
from trainingkit.sync.contract import Sync, SyncStats, trains_apart_now
from trainingkit.sync.control import ControlLane, peers_watched
from trainingkit.trainer.buffers import ModelBuffers
from trainingkit.trainer.groups import settings_of
from trainingkit.trainer.loss import count_tokens, find_loss
from trainingkit.trainer.phases import GradientClock, PhaseClock

NOT_FINITE = "the gradient is not finite"
ALONE = " on this rank; the others go on"
LossFn = Callable[[Any, Any], Any]
"""loss_fn(model, batch) -> the mean loss over the batch, or an output that holds it."""


class Rate(Protocol):
    """A learning-rate schedule: torch's LRScheduler fits, and so does `trainer.rate.RecipeRate`."""

    def step(self) -> None:
        """Advance by one update."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """JSON state."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue there."""
        ...


@dataclass(frozen=True)
class StepResult:
    """What one finished step was. `lrs` are the groups' learning rates that it was taken with, and `groups` their other
    settings (`trainer.groups`). `probe` is what `StepEngine.probe` gave before the update. `agreed` are the control
    lane's sums over all ranks; of the step before, where ranks train apart, so that none waits for the others' present
    step.
    """

    loss: float
    tokens: int
    grad_norm: float
    committed: bool
    reason: str | None
    stats: SyncStats
    lr: float
    lrs: tuple[float, ...]
    groups: tuple[Mapping[str, Any], ...]
    probe: dict[str, int]
    agreed: list[float]


class StepEngine:
    """Takes micro-batches; every `accumulate`-th completes a step.

    Attributes:
        probe: looks at the state before each update.
    """

    def __init__(
        self,
        *,
        sync: Sync,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        rate: Rate | None,
        control: ControlLane,
        clock: PhaseClock,
        buffers: ModelBuffers,
        compute: str,
        device: torch.device,
        accumulate: int,
        clip_norm: float | None,
        max_aborts: int,
        tell_loss: Callable[[float], None],
    ) -> None:
        self.probe: Callable[[], dict[str, int]] = dict
        self.sync = sync
        self.model = model
        self.optimizer = optimizer
        self.rate = rate
        self._control = control
        self._late = False
        self._agreed: list[float] = []
        self._clock = clock
        self._gradients = GradientClock(model)
        self._compute = compute
        self._device = device
        self._accumulate = accumulate
        self._clip_norm = clip_norm
        self._max_aborts = max_aborts
        self._tell_loss = tell_loss
        self._aborts = 0
        self._losses: list[torch.Tensor] = []
        self._tokens = 0
        self._buffers = buffers

    @property
    def between_steps(self) -> bool:
        """True when no step is half done."""
        return not self._losses

    def micro_batch(self, loss_fn: LossFn, batch: Any, offer: Callable[[], list[float]]) -> StepResult | None:
        """Forward and backward of one micro-batch; the step's result if it was the last.

        Args:
            offer: gives this rank's values for the control lane, asked as late as possible in the step.

        Raises:
            StepError: forward returned no loss.
            PeerLost: another rank is gone; the step may have been applied here and not there. Go on from a snapshot.
        """
        if self.between_steps:
            self._begin()
        last = len(self._losses) == self._accumulate - 1
        with self.sync.micro_batch(last=last):
            loss = self._forward(loss_fn, batch)
            self._tokens += count_tokens(batch)
            if last:
                self.sync.weight = float(self._tokens)
                if self._late:
                    self._finish_control()
                self._control.start(offer())
            self._backward(loss)
        self._losses.append(loss.detach())
        return self._finish() if last else None

    def cancel(self) -> None:
        """Give up a step that is half done: nothing of it stays but the random numbers it drew."""
        self._buffers.put_back()
        self.optimizer.zero_grad(set_to_none=True)
        self._forget_step()

    def check_aborts(self) -> None:
        """Raise StepError when `max_aborts` steps in a row were aborted."""
        if self._aborts < self._max_aborts:
            return
        raise StepError(
            f"{self._aborts} steps in a row were aborted because the gradient was not finite.",
            field="step.max_aborts",
            found=f"{self._aborts} aborted steps",
            expected="a finite gradient",
            next_step="Lower optimizer.lr, lengthen the warm-up, or set precision.compute = 'fp32'.",
        )

    def close(self) -> None:
        """Remove hooks."""
        self._gradients.close()

    def _begin(self) -> None:
        self._late = trains_apart_now(self.sync)
        self._buffers.remember()
        with self._clock.phase("stall"):
            self._buffers.align()
        self.optimizer.zero_grad(set_to_none=True)
        self.sync.begin()

    def _forward(self, loss_fn: LossFn, batch: Any) -> torch.Tensor:
        with self._clock.phase("forward"), peers_watched(), forward_context(self._compute, self._device):
            return find_loss(loss_fn(self.sync.module, batch))

    def _backward(self, loss: torch.Tensor) -> None:
        scaled = loss / self._accumulate if self._accumulate > 1 else loss
        with peers_watched():
            begin, end = _timed(scaled.backward)
        ready = min(max(self._gradients.ready_s, begin), end)
        self._clock.add("backward", ready - begin)
        self._clock.add("stall", end - ready)

    def _finish(self) -> StepResult:
        losses = torch.stack([loss.float() for loss in self._losses])
        lrs = tuple(float(group["lr"]) for group in self.optimizer.param_groups)
        groups, probe = settings_of(self.optimizer), self.probe()
        with self._clock.phase("update"):
            loss = float(losses.mean())
            self._tell_loss(loss)
            norm = self._gradient_norm()
            committed = math.isfinite(norm)
            stats = self._commit() if committed else self._abort()
        self._clock.move("update", "stall", stats.waited_s)
        for phase, seconds in stats.exposed.items():
            self._clock.move("stall", phase, seconds)
        if not (self._late and trains_apart_now(self.sync)):
            self._finish_control()
        result = StepResult(
            loss=loss,
            tokens=self._tokens,
            grad_norm=norm,
            committed=committed,
            reason=None if committed else NOT_FINITE + (ALONE if stats.alone else ""),
            stats=stats,
            lr=max(lrs, default=0.0),
            lrs=lrs,
            groups=groups,
            probe=probe,
            agreed=self._agreed,
        )
        self._forget_step()
        return result

    def _finish_control(self) -> None:
        with self._clock.phase("stall"):
            self._agreed = self._control.finish()

    def _gradient_norm(self) -> float:
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        if self._clip_norm is not None and bool(torch.isfinite(norm)):
            torch.nn.utils.clip_grads_with_norm_(self.model.parameters(), self._clip_norm, norm)
        return float(norm)

    def _commit(self) -> SyncStats:
        self.optimizer.step()
        if self.rate is not None:
            self.rate.step()
        self._aborts = 0
        return self.sync.commit()

    def _abort(self) -> SyncStats:
        self._buffers.put_back()
        self._aborts += 1
        stats = self.sync.abort()
        if stats.alone and self.rate is not None:
            self.rate.step()
        return stats

    def _forget_step(self) -> None:
        self._losses, self._tokens = [], 0
        self._buffers.forget()


def _timed(action: Callable[[], None]) -> tuple[float, float]:
    begin = time.perf_counter()
    action()
    return begin, time.perf_counter()

"""The DDP door: a communication hook that sends each bucket through codec and exchange, overlapped with backward.

Five functions touch a ready bucket before the optimizer does, in order:
    Squeezed._on_bucket      autograd thread    hands the round to the queue, gives DDP a future
    Squeezed._say            queue thread 0     finds the elements; the round encodes, first collective
    Round._answer            queue thread 1     sum in rank order, re-encode, second collective (three and more ranks)
    Round._hear              queue thread 2     decode
    Squeezed._on_result      queue thread 2     puts back what had been copied out, resolves the future
DDP waits for the futures at the end of backward.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from trainingkit.exchange.clock import StageClock
from trainingkit.exchange.lane import Lane
from trainingkit.exchange.queue import OrderedQueue
from trainingkit.exchange.registry import Round
from trainingkit.sync.buckets import Bucket, Buckets, Codecs
from trainingkit.sync.checks import check_exchanged, check_weight
from trainingkit.sync.contract import SyncStats
from trainingkit.sync.dense import DenseReduce
from trainingkit.sync.exempt import parameter_names
from trainingkit.sync.plain import group_of
from trainingkit.sync.residualstate import state_in


@dataclass(frozen=True)
class _Flight:
    """One bucket on its way: where its elements come from and go back to, and what DDP waits for."""

    bucket: Bucket
    round: Round
    buffer: torch.Tensor
    scale: float
    future: Future[torch.Tensor]


class Squeezed:
    """Squeezes the gradients of a DDP model; made by `sync.doors.squeeze`.

    A step's residuals are written beside the old ones. `commit` swaps them in; `abort` drops them. Who calls neither
    (a plain training loop) has each backward committed when the next one starts, unless a value was not finite.

    Args:
        ddp: the model; its one communication hook is taken.
        codecs: what carries which elements.
        lanes: as many as the exchange needs.
        warmup_steps: steps at the start that travel in the warm-up codec.
        dense_steps: steps at the start of the process that travel in DDP's own all-reduce (two where DDP is going to
            rebuild its buckets).
        normalise: code the squeezed parameters in units of their agreed second moment's root (`sync.moment`).

    Attributes:
        weight: this rank's weight in the mean, for example its tokens; equal weights give DDP's mean. A residual is
            paid with the weight of the step that carries it, and kept where that is zero. Plain DDP knows no weights.
        scaler: a GradScaler, whose scale is taken out before the residual is added and put back after.
        steps: exchanges made so far.
    """

    def __init__(
        self,
        ddp: DistributedDataParallel,
        codecs: Codecs,
        lanes: Sequence[Lane],
        *,
        squeezed: set[str],
        warmup_steps: int = 0,
        dense_steps: int = 0,
        normalise: bool = False,
    ) -> None:
        ddp.register_comm_hook(self, _hook)
        self.module = ddp
        self.weight = 1.0
        self.scaler: Any = None
        self.steps = 0
        self._codecs = codecs
        self._lanes = lanes
        self._ranks = dist.get_world_size(group_of(ddp))
        self._dense = DenseReduce(group_of(ddp))
        self._warmup_steps = warmup_steps
        self._dense_left = dense_steps
        self._detached = False
        self._names = parameter_names(ddp.module)
        self._dense_bytes = 4 * sum(p.numel() for p in ddp.module.parameters() if p.requires_grad)
        self._clock = StageClock()
        self._normalise = normalise
        self._rank = lanes[0].rank
        self._buckets = Buckets(
            codecs, lanes, squeezed, clock=self._clock, weight=lambda: self.weight, normalise=normalise
        )
        self._open: list[Bucket] = []
        self._unjudged = False
        self._sound = True
        self._factor = 1.0
        self._ready_s = 0.0
        self._counted_bytes = 0
        self._queue = OrderedQueue("exchange")

    def micro_batch(self, *, last: bool) -> contextlib.AbstractContextManager[object]:
        """All but the last micro-batch of a step accumulate locally (DDP's `no_sync`)."""
        return contextlib.nullcontext() if last else self.module.no_sync()

    def begin(self) -> None:
        """Settle a step that nobody committed or aborted."""
        self._settle()

    def commit(self) -> SyncStats:
        """Swap the new residuals in, unless a value was not finite.

        Raises:
            StepError: there was no exchange since the last step.
        """
        check_exchanged(self._unjudged)
        return self._take()

    def abort(self) -> SyncStats:
        """Drop the new residuals; the old ones still stand."""
        return self._close_step()

    def detach(self) -> None:
        """From now on plain DDP, bit for bit; DDP's hook itself cannot be taken off. Residuals stay in the state."""
        self._settle()
        self._detached = True

    def stats(self) -> dict[str, Any]:
        """Facts and totals: codec, steps, bytes sent so far, bytes a plain step sends."""
        return {**self.describe(), "steps": self.steps + self._unjudged, "sent_bytes": self._total_bytes()}

    def describe(self) -> dict[str, Any]:
        """Facts for the page: the codec, and what a plain step would send in fp32 and in bf16."""
        ring = 2 * (self._ranks - 1) / self._ranks
        return {
            "name": str(self._codecs.main.spec),
            "exempt": str(self._codecs.exempt.spec),
            "exchange": self._codecs.exchange,
            "fp32_bytes": round(ring * self._dense_bytes),
            "bf16_bytes": round(ring * self._dense_bytes / 2),
            "warmup_steps": self._warmup_steps,
            "normalise": self._normalise,
            "detached": self._detached,
        }

    def state_dict(self) -> dict[str, Any]:
        """Steps, whether detached, and residuals and moments by parameter name (see `sync.residualstate`)."""
        self._settle()
        return {"steps": self.steps, "detached": self._detached, **self._buckets.state()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue there, on the rank that made the state; an empty state (of plain DDP) starts afresh.

        Raises:
            CheckpointError: residuals or moments are of another model.
        """
        state = state_in(state_dict)
        self._buckets.load(state, {name: parameter.numel() for parameter, name in self._names.items()})
        self._forget_step()
        self.steps = state_dict.get("steps", 0)
        self._detached = state_dict.get("detached", False)

    def close(self) -> None:
        """End the queue's threads; the hook must not be called again."""
        self._queue.close()

    def _on_bucket(self, bucket: GradBucket) -> Future[torch.Tensor]:
        if bucket.index() == 0:
            self._settle()
            self._unjudged = True
            check_weight(self.weight)
            dense = self._dense_left > 0 and not self._detached
            self._factor = self._dense.agreed_factor(self.weight, bucket.buffer().device) if dense else 1.0
        if self._detached or self._dense_left > 0:
            return self._dense.start(bucket.buffer(), self._factor)
        ready = self._buckets.of(bucket, self._names)
        round_ = ready.round(self._codecs.name_at(self.steps, self._warmup_steps))
        scale = float(self.scaler.get_scale()) if self.scaler is not None else 1.0
        flight = _Flight(ready, round_, bucket.buffer(), scale, Future())
        self._open.append(ready)
        self._ready_s = time.perf_counter()
        self._queue.put((partial(self._say, flight), *round_.stages[1:]), partial(self._on_result, flight))
        return flight.future

    def _say(self, flight: _Flight) -> None:
        with self._clock.stage("encode"):
            for carried in flight.bucket.carried:
                carried.take(flight.buffer, 1.0 / flight.scale)
        flight.round.stages[0]()

    def _on_result(self, flight: _Flight, error: BaseException | None) -> None:
        try:
            if error is None:
                self._put_back(flight)
        except Exception as failure:
            error = failure
        if error is None:
            flight.future.set_result(flight.buffer)
        else:
            failed = RuntimeError(f"the exchange failed: {type(error).__name__}: {error}")
            flight.future.set_exception(failed)  # pyright: ignore[reportArgumentType]

    def _put_back(self, flight: _Flight) -> None:
        with self._clock.stage("decode"):
            for carried in flight.bucket.carried:
                carried.put(flight.buffer, flight.scale)
            may_overflow = flight.scale != 1.0 or flight.buffer.dtype == torch.float16
            if not flight.round.finite or (may_overflow and not bool(flight.buffer.isfinite().all())):
                self._sound = False
                flight.buffer.fill_(float("nan"))

    def _settle(self) -> None:
        """Commit a backward that nobody judged."""
        if self._unjudged:
            self._take()

    def _take(self) -> SyncStats:
        if self._sound:
            for bucket in self._open:
                bucket.commit(self._rank)
        return self._close_step()

    def _close_step(self) -> SyncStats:
        if not self._unjudged:
            return SyncStats()
        hidden, exposed = self._clock.split(self._ready_s)
        exposed.pop("wire")
        self._forget_step()
        self.steps += 1
        self._dense_left = max(0, self._dense_left - 1)
        total = self._total_bytes()
        sent, self._counted_bytes = total - self._counted_bytes, total
        return SyncStats(wire_bytes=sent, hidden=hidden, exposed=exposed)

    def _forget_step(self) -> None:
        self._clock.reset()
        self._open = []
        self._unjudged = False
        self._sound = True

    def _total_bytes(self) -> int:
        return self._dense.sent_bytes + sum(lane.sent_bytes for lane in self._lanes)


def _hook(squeezed, bucket):  # no annotations: DDP compares them with its types, and ours are texts
    return squeezed._on_bucket(bucket)

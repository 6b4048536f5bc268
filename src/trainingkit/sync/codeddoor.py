"""Buckets that travel in codecs: how each of them goes out and comes back, on the queue's threads.

CodedDoor.send           autograd thread    hands the round to the queue, gives DDP a future
CodedDoor._say           queue thread 0     finds the elements; the round encodes, first collective
Round._answer            queue thread 1     sum in rank order, re-encode, second collective (three and more ranks)
Round._hear              queue thread 2     decode
CodedDoor._on_result     queue thread 2     puts back what had been copied out, resolves the future
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch.futures import Future

from trainingkit.exchange.clock import StageClock
from trainingkit.exchange.queue import OrderedQueue
from trainingkit.exchange.registry import Repeatable, Round
from trainingkit.sync.agreed import Agreed, Tap
from trainingkit.sync.auto.adaptive import NOWHERE, Adaptive, Place
from trainingkit.sync.auto.ladder import PLAIN, Rung
from trainingkit.sync.auto.looking import look_at
from trainingkit.sync.buckets import Bucket, Buckets, Shape
from trainingkit.sync.gauge import SAMPLE_EVERY, StepGauge


@dataclass(frozen=True)
class _Flight:
    """One bucket on its way: where its elements come from and go back to, and what DDP waits for."""

    shape: Shape
    codec: str
    bucket: Bucket
    round: Round
    buffer: torch.Tensor
    scale: float
    future: Future[torch.Tensor]


class CodedDoor:
    """One step's coded buckets. What a round leaves is written beside what was owed before, until `commit`.

    Args:
        queue: whose threads carry rounds, in the same order on all ranks.
        values: says in which numbers a bucket travels.
        samples: whether some messages are compared with what they were to say.

    Attributes:
        open: the step's buckets so far.
        sound: False when a bucket came back with a value that is not finite.
        tap: told of every bucket's agreed messages, where somebody keeps them (see `sync.agreed`).
    """

    def __init__(
        self,
        buckets: Buckets,
        queue: OrderedQueue,
        gauge: StepGauge,
        clock: StageClock,
        values: Adaptive,
        *,
        samples: bool,
    ) -> None:
        self.open: list[Bucket] = []
        self.sound = True
        self.tap: Tap | None = None
        self._buckets = buckets
        self._queue = queue
        self._gauge = gauge
        self._clock = clock
        self._values = values
        self._samples = samples
        self._rung = Rung(PLAIN)
        self._step = 0

    def begin(self, step: int, rung: Rung) -> None:
        """An exchange begins.

        Args:
            step: how many there were before.
            rung: on which it travels.
        """
        self._step, self._rung = step, rung

    def send(self, buffer: torch.Tensor, shape: Shape, *, scale: float) -> Future[torch.Tensor]:
        """Exchange a bucket in place.

        Args:
            scale: of the gradients.
        """
        ready = self._buckets.of(shape)
        codec = self._values.codec(ready.place, self._rung)
        round_ = ready.round(self._rung, self._buckets.owner, codec)
        flight = _Flight(shape, codec, ready, round_, buffer, scale, Future())
        self.open.append(ready)
        self._queue.put((partial(self._say, flight), *round_.stages[1:]), partial(self._on_result, flight))
        return flight.future

    def commit(self) -> None:
        """The step is taken: what its rounds left is owed now."""
        for bucket in self.open:
            bucket.commit(self._buckets.owner)

    def forget(self) -> None:
        """The step is over."""
        self.open = []
        self.sound = True

    def costs(self) -> dict[Place, dict[str, int]]:
        """What each bucket of the step would take in other numbers, where that is anybody's business."""
        buckets: Sequence[Bucket] = self.open if self._values.active else ()
        return {bucket.place: bucket.costs for bucket in buckets if bucket.place != NOWHERE}

    def _say(self, flight: _Flight) -> None:
        with self._clock.stage("encode"):
            for carried in flight.bucket.carried:
                carried.take(flight.buffer, 1.0 / flight.scale)
        flight.round.stages[0]()
        if self._samples and self._step % SAMPLE_EVERY == 0 and flight.bucket is self.open[0]:
            part = flight.bucket.matrices()
            if part is not None:
                self._gauge.sample(part)

    def _on_result(self, flight: _Flight, error: BaseException | None) -> None:
        try:
            if error is None:
                self._put_back(flight)
        except Exception as failure:
            error = failure
        self._gauge.agreed()
        if error is None:
            flight.future.set_result(flight.buffer)
        else:
            failed = RuntimeError(f"the exchange failed: {type(error).__name__}: {error}")
            flight.future.set_exception(failed)  # pyright: ignore[reportArgumentType]

    def _put_back(self, flight: _Flight) -> None:
        with self._clock.stage("decode"):
            part = flight.bucket.matrices() if self._values.looks(self._step) else None
            if part is not None:
                self._values.look(flight.bucket.place, look_at(part))
            for carried in flight.bucket.carried:
                carried.put(flight.buffer, flight.scale)
            may_overflow = flight.scale != 1.0 or flight.buffer.dtype == torch.float16
            if not flight.round.finite or (may_overflow and not bool(flight.buffer.isfinite().all())):
                self.sound = False
                flight.buffer.fill_(float("nan"))
        if self.tap is not None and isinstance(flight.round, Repeatable):
            self.tap(Agreed(flight.shape.key, self._rung, flight.codec, flight.scale, flight.round.heard))

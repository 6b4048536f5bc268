"""Buckets that travel in DDP's own all-reduce: before a codec begins, on the plain rung, and after `detach`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch.futures import Future

from trainingkit.sync.buckets import Buckets, Shape
from trainingkit.sync.dense import DenseReduce
from trainingkit.sync.gauge import StepGauge
from trainingkit.sync.paying import pay


class DenseDoor:
    """One step's dense buckets. What codecs still owe can be paid with them, in the same transaction.

    Args:
        ranks, rank: how many there are, and owner of which shard this one is.

    Attributes:
        sound: False when a bucket that paid came back with a value that is not finite.
    """

    def __init__(self, reduce: DenseReduce, buckets: Buckets, gauge: StepGauge, *, ranks: int, rank: int) -> None:
        self.sound = True
        self._reduce = reduce
        self._buckets = buckets
        self._gauge = gauge
        self._ranks = ranks
        self._rank = rank
        self._factor = 1.0
        self._usual = 1.0
        self._total: Callable[[], float] | None = None
        self._paid: list[Shape] = []
        self._pays = False

    @property
    def sent_bytes(self) -> int:
        """Bytes this rank has sent so far, by the ring's formula."""
        return self._reduce.sent_bytes

    def begin(self, weight: float | None, device: torch.device, *, waits: bool) -> None:
        """An exchange begins.

        A rank's factor is N w_r / W. Where nobody waits for W, gradients travel times w_r / w, with a w that all ranks
        know from a step that waited, and are multiplied by N / (sum of w_r / w) after: by 1 where all weights are w.

        Args:
            weight: this rank's in the mean; None: DDP's mean as it is.
            waits: agree on the weights before anything travels.
        """
        self._factor, self._total = 1.0, None
        if weight is None:
            return
        if waits:
            weights = self._reduce.agreed_weights(weight, device)
            self._factor = self._reduce.factor(weights)
            self._usual = weights[0] if weights[0] > 0.0 else 1.0
            return
        self._factor = weight / self._usual
        self._total = self._reduce.total(self._factor, device)

    def send(self, buffer: torch.Tensor, shape: Shape, *, scale: float, pays: bool) -> Future[torch.Tensor]:
        """Reduce a bucket in place.

        Args:
            scale: of the gradients.
            pays: add what is owed of these parameters; a rank of weight zero takes no part, so it goes on owing.
        """
        self._pays = pays
        owing = self._buckets.owing(shape) if pays and self._factor != 0.0 else None
        if owing is not None:
            for carried in owing.carried:
                pay(carried, buffer, scale=scale, factor=self._factor, ranks=self._ranks, rank=self._rank)
            self._paid.append(shape)
        return self._reduce.start(buffer, self._factor).then(partial(self._back, watched=owing is not None))

    def commit(self) -> None:
        """The step is taken: what was paid is owed no more. Who could not pay keeps no unit that others dropped."""
        for shape in self._paid:
            self._buckets.drop(shape)
        if self._pays:
            self._buckets.end_units()

    def forget(self) -> None:
        """The step is over."""
        self._paid = []
        self._pays = False
        self.sound = True

    def _back(self, done: Future[torch.Tensor], *, watched: bool) -> torch.Tensor:
        buffer = done.value()
        total = self._total() if self._total is not None else float(self._ranks)
        if total not in (0.0, float(self._ranks)):
            buffer.mul_(self._ranks / total)
        if watched and not bool(buffer.isfinite().all()):
            self.sound = False
        self._gauge.agreed()
        return buffer

"""Buckets that travel in DDP's own all-reduce: before a codec begins, on the plain rung, and after `detach`."""

from __future__ import annotations

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
        self._paid: list[Shape] = []
        self._pays = False

    @property
    def sent_bytes(self) -> int:
        """Bytes this rank has sent so far, by the ring's formula."""
        return self._reduce.sent_bytes

    def begin(self, weight: float | None, device: torch.device) -> None:
        """An exchange begins.

        Args:
            weight: this rank's in the mean, agreed by one tiny all-gather; None: DDP's mean as it is.
        """
        self._factor = self._reduce.agreed_factor(weight, device) if weight is not None else 1.0

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
        """The step is taken: what was paid is owed no more. Who could not pay keeps no unit that others have dropped."""
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
        if watched and not bool(buffer.isfinite().all()):
            self.sound = False
        self._gauge.agreed()
        return buffer

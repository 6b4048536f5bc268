"""The buckets of a DDP model as parts and rounds, made when DDP first shows them, and again when it rebuilds them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._C._distributed_c10d import GradBucket

from trainingkit.codec import Codec
from trainingkit.core.errors import CheckpointError
from trainingkit.core.logging import LOG
from trainingkit.exchange.clock import StageClock
from trainingkit.exchange.lane import Lane
from trainingkit.exchange.parts import Part
from trainingkit.exchange.registry import EXCHANGES, Round
from trainingkit.sync.bucketplan import Carried, split_bucket
from trainingkit.sync.residualstate import State, export, fill, merge

MAIN, WARMUP = "main", "warmup"


@dataclass(frozen=True)
class Codecs:
    """What carries which elements, and through which exchange.

    Args:
        main: the matrices.
        warmup: the matrices, during the first steps.
        exempt: everything else.
        exchange: name of the registry entry.
    """

    main: Codec
    warmup: Codec
    exempt: Codec
    exchange: str

    def of(self, name: str) -> Codec:
        """The matrices' codec by its name, MAIN or WARMUP."""
        return self.main if name == MAIN else self.warmup

    def name_at(self, step: int, warmup_steps: int) -> str:
        """Which codec carries the matrices in a step (0-based)."""
        return WARMUP if step < warmup_steps else MAIN

    @property
    def granule(self) -> int:
        """A shard of matrices is a multiple of this, so that either codec can carry it."""
        return math.lcm(self.main.granule, self.warmup.granule)


class Bucket:
    """One bucket: its parts, and a round per codec that may carry them, over the same residuals."""

    def __init__(
        self, carried: Sequence[Carried], kinds: Sequence[bool], make: Callable[[list[Part]], Round], codecs: Codecs
    ):
        self.carried = tuple(carried)
        self._kinds = kinds
        self._make = make
        self._codecs = codecs
        self._rounds: dict[str, Round] = {}

    def round(self, name: str) -> Round:
        """The round in which `name`'s codec carries the matrices."""
        if name not in self._rounds:
            parts = [
                Part(self._codecs.of(name) if squeezed else self._codecs.exempt, c.layout, c.values, c.residuals)
                for c, squeezed in zip(self.carried, self._kinds, strict=True)
            ]
            self._rounds[name] = self._make(parts)
        return self._rounds[name]


class Buckets:
    """All buckets, by the names of their parameters.

    Args:
        squeezed: names of the parameters that the main codec carries.
        weight: gives this rank's weight in the mean.
    """

    def __init__(
        self,
        codecs: Codecs,
        lanes: Sequence[Lane],
        squeezed: set[str],
        *,
        clock: StageClock,
        weight: Callable[[], float],
    ) -> None:
        self._codecs = codecs
        self._kind = EXCHANGES.get(codecs.exchange)
        self._rank = lanes[0].rank
        self._owners = self._kind.owners(lanes[0].world_size)
        self._squeezed = squeezed
        self._make: Callable[[list[Part]], Round] = lambda parts: self._kind(parts, lanes, weight, clock)
        self._buckets: dict[tuple[str, ...], Bucket] = {}
        self._waiting = State(own={}, answer={})

    def of(self, bucket: GradBucket, names: Mapping[torch.Tensor, str]) -> Bucket:
        """The bucket that DDP shows, made on first sight."""
        parameters = bucket.parameters()
        key = tuple(names[parameter] for parameter in parameters)
        if key not in self._buckets:
            self._retire(set(key))
            self._buckets[key] = self._new(key, {names[p]: p.numel() for p in parameters})
        return self._buckets[key]

    def commit(self, used: Sequence[Bucket]) -> None:
        """Swap the residuals of the buckets that took part."""
        for bucket in used:
            for carried in bucket.carried:
                carried.residuals.commit()

    def state(self) -> dict[str, Any]:
        """All residuals by name, those not yet placed included."""
        placed = export((c for bucket in self._buckets.values() for c in bucket.carried), self._rank)
        return dict(merge(self._waiting, placed))

    def load(self, state: State, sizes: Mapping[str, int]) -> None:
        """Take over residuals; they are placed when DDP shows their buckets.

        Raises:
            CheckpointError: a name or a size that the model does not have.
        """
        for name, residual in state["own"].items():
            if sizes.get(name) != residual.numel():
                raise CheckpointError(
                    "A residual in the snapshot does not fit the model.",
                    field=f"sync.own.{name}",
                    found=f"{residual.numel()} elements",
                    expected=f"{sizes[name]} elements" if name in sizes else "no such parameter",
                    next_step="Resume with the model that made the snapshot.",
                )
        self._buckets = {}
        self._waiting = state

    def _new(self, key: tuple[str, ...], sizes: Mapping[str, int]) -> Bucket:
        carried, kinds = [], []
        for runs, squeezed in zip(split_bucket(key, sizes, self._squeezed), (True, False), strict=True):
            if runs:
                granule = self._codecs.granule if squeezed else self._codecs.exempt.granule
                carried.append(Carried(runs, owners=self._owners, granule=granule))
                kinds.append(squeezed)
        for part in carried:
            fill(part, self._rank, self._waiting)
        for name in key:
            self._waiting["own"].pop(name, None)
            self._waiting["answer"].pop(name, None)
        return Bucket(carried, kinds, self._make, self._codecs)

    def _retire(self, names: set[str]) -> None:
        """Buckets that DDP has rebuilt into others give their residuals back, by name."""
        old = [key for key in self._buckets if names & set(key)]
        if not old:
            return
        gone = [self._buckets.pop(key) for key in old]
        self._waiting = merge(self._waiting, export((c for bucket in gone for c in bucket.carried), self._rank))
        if self._owners > 1:
            LOG.warning("DDP rebuilt its buckets: owners' residuals are kept only where the owner stays the same")

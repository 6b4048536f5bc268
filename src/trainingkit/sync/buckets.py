"""The buckets of a DDP model as parts and rounds, made when DDP first shows them, and again when it rebuilds them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch._C._distributed_c10d import GradBucket

from trainingkit.codec import Codec
from trainingkit.core.logging import LOG
from trainingkit.exchange.clock import StageClock
from trainingkit.exchange.lane import Lane
from trainingkit.exchange.parts import Part
from trainingkit.exchange.registry import EXCHANGES, Round
from trainingkit.sync.bucketplan import Carried, split_bucket
from trainingkit.sync.residualstate import State, check_fits, export, fill, in_gradients, merge, moments

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
    """One bucket: its parts, and the round that carries them; another codec is another round, same residuals."""

    def __init__(
        self, carried: Sequence[Carried], kinds: Sequence[bool], make: Callable[[list[Part]], Round], codecs: Codecs
    ) -> None:
        self.carried = tuple(carried)
        self._kinds = kinds
        self._make = make
        self._codecs = codecs
        self._name = ""
        self._round: Round | None = None

    def round(self, name: str) -> Round:
        """The round in which `name`'s codec carries the matrices; the buffers of the one before are freed."""
        if self._round is None or self._name != name:
            parts = [
                Part(self._codecs.of(name) if squeezed else self._codecs.exempt, c.layout, c.values, c.residuals)
                for c, squeezed in zip(self.carried, self._kinds, strict=True)
            ]
            self._name, self._round = name, self._make(parts)
        return self._round

    def commit(self, rank: int) -> None:
        """The last round was taken: swap the residuals."""
        assert self._round is not None
        for carried in self.carried:
            carried.commit(counted=self._round.counted, rank=rank)


class Buckets:
    """All buckets, by the names of their parameters.

    Args:
        squeezed: names of the parameters that the main codec carries.
        weight: gives this rank's weight in the mean.
        normalise: code the squeezed parameters in units of their agreed second moment's root.
    """

    def __init__(
        self,
        codecs: Codecs,
        lanes: Sequence[Lane],
        squeezed: set[str],
        *,
        clock: StageClock,
        weight: Callable[[], float],
        normalise: bool = False,
    ) -> None:
        self._codecs = codecs
        self._kind = EXCHANGES.get(codecs.exchange)
        self._rank = lanes[0].rank
        self._owners = self._kind.owners(lanes[0].world_size)
        self._squeezed = squeezed
        self._normalised = squeezed if normalise else set[str]()
        self._make: Callable[[list[Part]], Round] = lambda parts: self._kind(parts, lanes, weight, clock)
        self._buckets: dict[tuple[str, ...], Bucket] = {}
        self._waiting = State(own={}, answer={})

    def of(self, bucket: GradBucket, names: Mapping[Any, str]) -> Bucket:
        """The bucket that DDP shows, made on first sight."""
        parameters = bucket.parameters()
        key = tuple(names[parameter] for parameter in parameters)
        if key not in self._buckets:
            self._retire(set(key))
            self._buckets[key] = self._new(key, {names[p]: p.numel() for p in parameters})
        return self._buckets[key]

    def state(self) -> dict[str, Any]:
        """All residuals by name, those not yet placed included."""
        placed = export((c for bucket in self._buckets.values() for c in bucket.carried), self._rank)
        return dict(merge(self._waiting, placed))

    def load(self, state: State, sizes: Mapping[str, int]) -> None:
        """Take over residuals; they are placed when DDP shows their buckets.

        Raises:
            CheckpointError: a name or a size that the model does not have.
        """
        check_fits(state, sizes)
        self._buckets = {}
        self._waiting = merge(State(own={}, answer={}), in_gradients(state, keep=self._normalised))
        self._say_units(state)

    def _new(self, key: tuple[str, ...], sizes: Mapping[str, int]) -> Bucket:
        carried, kinds = [], []
        for runs, squeezed in zip(split_bucket(key, sizes, self._squeezed), (True, False), strict=True):
            if any(run.elements for run in runs):
                granule = self._codecs.granule if squeezed else self._codecs.exempt.granule
                normalise = squeezed and bool(self._normalised)
                carried.append(Carried(runs, owners=self._owners, granule=granule, normalise=normalise))
                kinds.append(squeezed)
        lost = sum(fill(part, self._rank, self._waiting) for part in carried)
        if lost:
            LOG.warning(
                "%d owners' residuals of %s and others were dropped: another rank owns them since the buckets changed",
                lost,
                key[0],
            )
        for name in key:
            self._waiting["own"].pop(name, None)
            self._waiting["answer"].pop(name, None)
            moments(self._waiting).pop(name, None)
        return Bucket(carried, kinds, self._make, self._codecs)

    def _retire(self, names: set[str]) -> None:
        """Buckets that DDP has rebuilt into others give their residuals back, by name."""
        old = [key for key in self._buckets if names & set(key)]
        if not old:
            return
        gone = [self._buckets.pop(key) for key in old]
        self._waiting = merge(self._waiting, export((c for bucket in gone for c in bucket.carried), self._rank))

    def _say_units(self, state: State) -> None:
        """What becomes of a state whose wire was normalised and ours is not, or the other way round."""
        if moments(state).keys() - self._normalised:
            LOG.info("the state's wire was normalised: residuals are in gradients' units again, moments are dropped")
        elif self._normalised & state["own"].keys() and not moments(state):
            LOG.info("the state's wire was not normalised: residuals stay as they are, the moments begin anew")

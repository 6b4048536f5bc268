"""The buckets of a DDP model as parts and rounds, made when DDP first shows them, and again when it rebuilds them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch._C._distributed_c10d import GradBucket

from trainingkit.codec import Codec
from trainingkit.core.logging import LOG
from trainingkit.exchange.clock import StageClock
from trainingkit.exchange.header import HEADER_BYTES
from trainingkit.exchange.lane import Lane
from trainingkit.exchange.parts import Layout, Part
from trainingkit.exchange.registry import EXCHANGES, Round
from trainingkit.sync.auto.adaptive import NOWHERE, Place
from trainingkit.sync.auto.forecast import Load
from trainingkit.sync.auto.ladder import PLAIN, Rung
from trainingkit.sync.bucketplan import Carried, split_bucket
from trainingkit.sync.residualstate import State, check_fits, export, fill, in_gradients, merge, moments

APPLY_S = 5e-9
"""Seconds an element that a round of differences takes of the training thread (docs/decisions/0007-every-h.md)."""


@dataclass(frozen=True)
class Codecs:
    """What carries which elements, and through which exchange.

    Args:
        matrices: codecs that may carry the matrices, by spec text.
        exempt: everything else.
        exchange: name of the registry entry.
    """

    matrices: Mapping[str, Codec]
    exempt: Codec
    exchange: str

    @property
    def granule(self) -> int:
        """A shard of matrices is a multiple of this, so that any of the codecs can carry it."""
        return math.lcm(*(codec.granule for codec in self.matrices.values()))


@dataclass(frozen=True)
class Shape:
    """Names of a bucket's parameters in its order, the elements of each, and the bytes of one element."""

    key: tuple[str, ...]
    sizes: Mapping[str, int]
    element_bytes: int = 4

    @staticmethod
    def of(bucket: GradBucket, names: Mapping[Any, str]) -> Shape:
        """Of a bucket that DDP shows."""
        parameters = bucket.parameters()
        sizes = {names[p]: p.numel() for p in parameters}
        return Shape(tuple(names[p] for p in parameters), sizes, bucket.buffer().element_size())


class Bucket:
    """One bucket: its parts, and the round that carries them; another rung is another round, same residuals."""

    def __init__(
        self, carried: Sequence[Carried], kinds: Sequence[bool], make: Callable[[list[Part]], Round], codecs: Codecs
    ) -> None:
        self.carried = tuple(carried)
        self._kinds = kinds
        self._make = make
        self._codecs = codecs
        self._way: tuple[Rung, str] | None = None
        self._round: Round | None = None
        self.place = next((_place(c) for c, squeezed in zip(carried, kinds, strict=True) if squeezed), NOWHERE)

    @functools.cached_property
    def costs(self) -> dict[str, int]:
        """Bytes of one message's matrices, by codec."""
        shards = [c.layout.shard for c, squeezed in zip(self.carried, self._kinds, strict=True) if squeezed]
        return {name: sum(map(codec.message_bytes, shards)) for name, codec in self._codecs.matrices.items()}

    def round(self, rung: Rung, rank: int, codec: str) -> Round:
        """The round in which that codec carries the matrices; the buffers of the one before are freed.

        Args:
            rung: says the unit, and the codec where buckets do not choose theirs.
        """
        if self._round is None or self._way != (rung, codec):
            matrices = self._codecs.matrices[codec]
            parts = []
            for carried, squeezed in zip(self.carried, self._kinds, strict=True):
                carried.set_normalise(on=squeezed and rung.normalise, rank=rank)
                chosen = matrices if squeezed else self._codecs.exempt
                parts.append(Part(chosen, carried.layout, carried.values, carried.residuals))
            self._way, self._round = (rung, codec), self._make(parts)
        return self._round

    def matrices(self) -> Part | None:
        """The part of the round that the rung's codec carries; None where there is none."""
        assert self._round is not None
        return next((part for part, squeezed in zip(self._round.parts, self._kinds, strict=True) if squeezed), None)

    def end_unit(self, rank: int) -> None:
        """Its residuals are in gradients' units again; the next round is built anew."""
        for carried in self.carried:
            carried.set_normalise(on=False, rank=rank)
        self._way = self._round = None

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
        normalise: whether a rung may code the squeezed parameters in units of their agreed second moment's root.
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
        self._seat = self._kind.seat(lanes)
        self._rank = self.owner = self._seat.owned or 0
        self._owners = self._seat.shards
        self._squeezed = squeezed
        self._normalised = squeezed if normalise else set[str]()
        self._make: Callable[[list[Part]], Round] = lambda parts: self._kind(parts, lanes, weight, clock)
        self._buckets: dict[tuple[str, ...], Bucket] = {}
        self._waiting = State(own={}, answer={})

    def of(self, shape: Shape) -> Bucket:
        """The bucket of that shape, made on first sight."""
        if shape.key not in self._buckets:
            self._retire(set(shape.key))
            self._buckets[shape.key] = self._new(shape)
        return self._buckets[shape.key]

    def owing(self, shape: Shape) -> Bucket | None:
        """The bucket of that shape, if anything is known that may be owed of it."""
        waits = any(name in self._waiting["own"] or name in self._waiting["answer"] for name in shape.key)
        placed = any(set(key) & set(shape.key) for key in self._buckets)
        return self.of(shape) if waits or placed else None

    def drop(self, shape: Shape) -> None:
        """Nothing is owed of this bucket any more: its memory is freed."""
        self._buckets.pop(shape.key, None)

    def end_units(self) -> None:
        """All residuals are in gradients' units again, and no moment is known."""
        for bucket in self._buckets.values():
            bucket.end_unit(self._rank)

    def loads(self, shapes: Sequence[Shape], rungs: Sequence[Rung], ranks: int) -> list[Load]:
        """What each rung would put on the wire for buckets of these shapes; coding seconds are left at zero."""
        return [self._load(shapes, rung, ranks) for rung in rungs]

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

    def _load(self, shapes: Sequence[Shape], rung: Rung, ranks: int) -> Load:
        if rung.codec == PLAIN:
            ring = 2 * (ranks - 1) / ranks
            return Load(tuple(ring * s.element_bytes * sum(s.sizes.values()) for s in shapes), 1, 0.0)
        sent = tuple(float(self._seat.copies * self._message_bytes(shape, rung)) for shape in shapes)
        if not rung.apart:
            return Load(sent, self._seat.trips, 0.0)
        apply_s = APPLY_S * sum(sum(shape.sizes.values()) for shape in shapes)
        return Load(sent, self._seat.trips, 0.0, every=rung.every, lag=rung.tau, apply_s=apply_s)

    def _message_bytes(self, shape: Shape, rung: Rung) -> int:
        total = HEADER_BYTES
        for runs, squeezed in zip(split_bucket(shape.key, shape.sizes, self._squeezed), (True, False), strict=True):
            elements = sum(run.elements for run in runs)
            codec = self._codecs.matrices[rung.codec] if squeezed else self._codecs.exempt
            granule = self._codecs.granule if squeezed else codec.granule
            if elements:
                total += codec.message_bytes(Layout(elements, self._owners, granule).shard)
        return total

    def _new(self, shape: Shape) -> Bucket:
        key, carried, kinds = shape.key, [], []
        for runs, squeezed in zip(split_bucket(key, shape.sizes, self._squeezed), (True, False), strict=True):
            if any(run.elements for run in runs):
                granule = self._codecs.granule if squeezed else self._codecs.exempt.granule
                normalise = any(run.name in moments(self._waiting) for run in runs)
                answers = self._seat.owned is not None
                carried.append(
                    Carried(runs, owners=self._owners, granule=granule, answers=answers, normalise=normalise)
                )
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


def _place(carried: Carried) -> Place:
    return Place(carried.runs[0].name, carried.layout.elements)

"""One parcel: some parameters laid end to end, as this rank has them, as all agreed on them, and as they travel.

The difference `agreed - local` is coded like a bucket of gradients: matrices in the codec, exempt tensors in bf16, each
with its residual. Elements are in the order of the parameter's indices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import torch
from torch import nn

from trainingkit.codec import Codec
from trainingkit.exchange.clock import StageClock
from trainingkit.exchange.lane import Lane
from trainingkit.exchange.parts import Part
from trainingkit.exchange.queue import OrderedQueue
from trainingkit.exchange.registry import EXCHANGES, Repeatable, Round
from trainingkit.sync.bucketplan import Carried, split_bucket
from trainingkit.sync.every.outer import outer_step
from trainingkit.sync.every.settings import Every


@dataclass(frozen=True)
class Wire:
    """How parcels travel.

    Args:
        matrices, exempt: the codecs.
        exchange: name of the registry entry.
        lanes: as many as it needs.
        squeezed: names of the parameters that `matrices` carries.
        network: facts about the lanes, for the page.
    """

    matrices: Codec
    exempt: Codec
    exchange: str
    lanes: Sequence[Lane]
    squeezed: set[str]
    network: Mapping[str, object]
    clock: StageClock
    queue: OrderedQueue

    @property
    def named(self) -> tuple[str, str, str]:
        """The exchange and the codecs."""
        return self.exchange, str(self.matrices.spec), str(self.exempt.spec)

    @property
    def owner(self) -> int:
        """The shard whose mean this rank encodes again, as its residuals count it."""
        return EXCHANGES.get(self.exchange).seat(self.lanes).owned or 0


class Parcel:
    """Some parameters of one fragment.

    Args:
        named: the parameters by name, in order.
        wire: None with one rank, whose difference is the mean.
        weight: gives this rank's weight in the mean; constant while a round flies.

    Attributes:
        agreed: [elements] fp32, the agreed model.
        delta: [elements] fp32: the difference when a round starts, the mean when it has landed.
        launched: [elements] fp32: the local model when the round started; None where rounds are not delayed.
        momentum: [elements] fp32, of the outer step; None without.
        carried: the parts, with their residuals.
        decayed: sum of the magnitudes that this rank's residuals have lost by decay.
    """

    def __init__(
        self, named: dict[str, nn.Parameter], every: Every, wire: Wire | None, weight: Callable[[], float]
    ) -> None:
        self.named = named
        self._every = every
        self._wire = wire
        elements = sum(parameter.numel() for parameter in named.values())
        self.agreed = torch.empty(elements)
        self.delta = torch.zeros(elements)
        self.launched = torch.zeros(elements) if every.lag else None
        self.momentum = torch.zeros(elements) if every.outer_momentum else None
        self.decayed = 0.0
        self.carried: list[Carried] = []
        self._round: Round | None = None
        self._landing: Future[None] | None = None
        if wire is not None:
            self._round = self._build(wire, weight)
        self.read(self.agreed)

    def views(self, flat: torch.Tensor) -> Iterator[tuple[nn.Parameter, torch.Tensor]]:
        """Each parameter with its elements of a flat tensor, in the parameter's shape."""
        start = 0
        for parameter in self.named.values():
            yield parameter, flat[start : start + parameter.numel()].view(parameter.shape)
            start += parameter.numel()

    def read(self, flat: torch.Tensor) -> None:
        """Copy the local model."""
        with torch.no_grad():
            for parameter, view in self.views(flat):
                view.copy_(parameter)

    def write(self, flat: torch.Tensor) -> None:
        """Overwrite the local model."""
        with torch.no_grad():
            for parameter, view in self.views(flat):
                parameter.copy_(view)

    def measure(self) -> bool:
        """Take the difference between the agreed and the local model. Returns whether all of it is finite."""
        with torch.no_grad():
            for (parameter, view), (_, agreed) in zip(self.views(self.delta), self.views(self.agreed), strict=True):
                base = agreed.to(parameter.dtype).float()
                torch.sub(base, parameter.cpu().float(), out=view)
        return _finite(self.delta)

    def launch(self) -> None:
        """Start the round of what was measured."""
        if self.launched is not None:
            self.read(self.launched)
        if self._wire is None or self._round is None:
            return
        landing = self._landing = Future[None]()

        def over(error: BaseException | None) -> None:
            if error is None:
                landing.set_result(None)
            else:
                landing.set_exception(error)

        first, *others = self._round.stages
        *between, last = others
        self._wire.queue.put((lambda: self._say(first), *between, lambda: self._hear(last)), over)

    def land(self) -> bool:
        """Wait for the round. Returns whether all ranks' values were finite, and their mean is.

        Raises:
            RuntimeError: of the exchange, for example that a peer is gone.
        """
        if self._landing is not None:
            self._landing.result()
            self._landing = None
        return self._round is None or (self._round.finite and _finite(self.delta))

    def settle_residuals(self) -> None:
        """The round counts: what it left is owed, less the decay."""
        if self._wire is None or self._round is None:
            return
        for carried in self.carried:
            carried.commit(counted=self._round.counted, rank=self._wire.owner)
            if self._every.decay != 1.0:
                self._decay(carried)

    def forget_residuals(self) -> None:
        """Nothing is owed any more."""
        for carried in self.carried:
            carried.residuals.own.zero_()
            if carried.residuals.answer is not None:
                carried.residuals.answer.zero_()

    def apply(self) -> None:
        """Take the outer step, and bring the local model along: to the agreed one, or by as much as that has moved."""
        outer_step(self.agreed, self.delta, self.momentum, self._every)
        if self.launched is None:
            self.write(self.agreed)
            return
        torch.sub(self.agreed, self.launched, out=self.delta)
        with torch.no_grad():
            for parameter, view in self.views(self.delta):
                moved = view.to(parameter.device)
                if parameter.dtype == torch.float32:
                    parameter.add_(moved)
                else:
                    parameter.copy_(parameter.float() + moved)

    @property
    def repeatable(self) -> bool:
        """Whether rounds are made of messages alone (`exchange.registry.Repeatable`)."""
        return isinstance(self._round, Repeatable)

    @property
    def heard(self) -> torch.Tensor:
        """[ranks, bytes] uint8: the messages of the round that has landed; valid until the next one starts."""
        assert isinstance(self._round, Repeatable)
        return self._round.heard

    def apply_again(self, rows: torch.Tensor) -> None:
        """Take the outer step of a round whose messages were kept. The local model and what is owed stay."""
        assert isinstance(self._round, Repeatable)
        self.delta.zero_()
        for carried in self.carried:
            carried.take(self.delta, 1.0)
        self._round.hear_again(rows)
        for carried in self.carried:
            carried.put(self.delta, 1.0)
        outer_step(self.agreed, self.delta, self.momentum, self._every)

    def heal(self) -> None:
        """Go on from the agreed model; a round that flies will correct it as if it had been there all along."""
        self.write(self.agreed)
        if self.launched is not None:
            self.launched.copy_(self.agreed)

    def _say(self, stage: Callable[[], None]) -> None:
        assert self._wire is not None
        with self._wire.clock.stage("encode"):
            for carried in self.carried:
                carried.take(self.delta, 1.0)
        stage()

    def _hear(self, stage: Callable[[], None]) -> None:
        assert self._wire is not None
        stage()
        with self._wire.clock.stage("decode"):
            for carried in self.carried:
                carried.put(self.delta, 1.0)

    def _decay(self, carried: Carried) -> None:
        for owed in (carried.residuals.own, carried.residuals.answer):
            if owed is not None:
                self.decayed += (1.0 - self._every.decay) * float(owed.abs().sum())
                owed.mul_(self._every.decay)

    def _build(self, wire: Wire, weight: Callable[[], float]) -> Round:
        kind = EXCHANGES.get(wire.exchange)
        seat = kind.seat(wire.lanes)
        sizes = {name: parameter.numel() for name, parameter in self.named.items()}
        runs = split_bucket(list(self.named), sizes, wire.squeezed)
        parts: list[Part] = []
        for codec, these in zip((wire.matrices, wire.exempt), runs, strict=True):
            if any(run.elements for run in these):
                answers = seat.owned is not None
                carried = Carried(these, owners=seat.shards, granule=codec.granule, answers=answers)
                self.carried.append(carried)
                parts.append(Part(codec, carried.layout, carried.values, carried.residuals))
        return kind(parts, wire.lanes, weight, wire.clock)


def _finite(flat: torch.Tensor) -> bool:
    """Whether every element is; mostly one sum says so."""
    return bool(flat.sum().isfinite()) or bool(flat.isfinite().all())

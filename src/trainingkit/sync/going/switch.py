"""Gradients or apart, as the pilot says: a synchroniser that goes over at a step's border.

    commit / abort   of the one that is in use: `Squeezed` or `EverySync`
    then             the pilot's rung of the next step; where it is of the other kind, or has other rounds, `Crossing`

Steps are numbered on, so moves that are repeated give the same bits. See docs/decisions/0014-every-in-auto.md.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from trainingkit.sync.auto.flying import Auto
from trainingkit.sync.auto.ladder import Rung
from trainingkit.sync.auto.seen import Seen
from trainingkit.sync.buckets import Shape
from trainingkit.sync.contract import SyncStats
from trainingkit.sync.every import EverySpec, parse_every
from trainingkit.sync.every.apart import EverySync
from trainingkit.sync.every.gradsync import exchange_on
from trainingkit.sync.every.handover import GRADIENTS, is_apart, tell_of_detached, was_detached
from trainingkit.sync.going.crossing import Crossing
from trainingkit.sync.going.gauge import RoundGauge
from trainingkit.sync.squeezed import Squeezed


class Going:
    """Squeezes gradients, or lets ranks train apart; made by `sync.doors.squeeze`.

    The loop calls `commit` or `abort` after each step of the optimizer.

    Args:
        gradients: with a pilot that may say rungs apart.
        optimizer: over the model's parameters.

    Attributes:
        gradients: the synchroniser of gradients, which has the pilot and counts all steps.
        rounds: of training apart, while that lasts; else None.
    """

    def __init__(self, gradients: Squeezed, optimizer: Optimizer) -> None:
        self.gradients = gradients
        self.rounds: EverySync | None = None
        self._gauge: RoundGauge | None = None
        self._ddp: DistributedDataParallel = gradients.module
        self._crossing = Crossing(gradients, optimizer)
        if isinstance(gradients.pilot, Auto):
            gradients.pilot.refusal = self._crossing.refusal
        self._go_where_the_pilot_says()

    @property
    def module(self) -> nn.Module:
        """What forward is called on."""
        return self._ddp

    @property
    def apart(self) -> bool:
        """Whether ranks train on their own now."""
        return self.rounds is not None

    @property
    def weight(self) -> float:
        """This rank's share in the mean, of a step's gradients or of a round."""
        return self.gradients.weight

    @weight.setter
    def weight(self, weight: float) -> None:
        self.gradients.weight = weight
        if self.rounds is not None:
            self.rounds.weight = weight

    @property
    def scaler(self) -> Any:
        """A GradScaler, for gradients; differences of parameters have no scale."""
        return self.gradients.scaler

    @scaler.setter
    def scaler(self, scaler: Any) -> None:
        self.gradients.scaler = scaler

    def micro_batch(self, *, last: bool) -> contextlib.AbstractContextManager[object]:
        """All but the last micro-batch accumulate locally; where ranks train apart, all do."""
        return contextlib.nullcontext() if self.apart else self.gradients.micro_batch(last=last)

    def begin(self) -> None:
        """Go where the pilot is, where somebody else has brought it on; then see `Squeezed`."""
        self._go_where_the_pilot_says()
        if not self.apart:
            self.gradients.begin()

    def commit(self) -> SyncStats:
        """The optimizer has stepped. Then go over, where the pilot says so: all ranks are here after the same step.

        Raises:
            StepError: gradients travel, and there was no exchange since the last step.
            PeerLost: a peer is gone.
        """
        return self._over(taken=True)

    def abort(self) -> SyncStats:
        """The optimizer has not stepped: on no rank, or where ranks train apart on this one."""
        return self._over(taken=False)

    def settle(self) -> bool:
        """Bring all ranks to one model, where they train apart. Returns whether there was anything to do."""
        return self.rounds.settle() if self.rounds is not None else False

    def agreed_weights(self) -> contextlib.AbstractContextManager[None]:
        """The agreed model in place of this rank's own, where they differ."""
        return self.rounds.agreed_weights() if self.rounds is not None else contextlib.nullcontext()

    def rhythm(self) -> tuple[int, int]:
        """Steps from one exchange to the next, and how many there are until as little as may be is on its way."""
        if self.rounds is None:
            return 1, 0
        every = self.rounds.spec.every
        quiet = min(every.lag, every.steps - 1)
        return every.steps, (quiet - self.rounds.steps) % every.steps

    def rest(self) -> None:
        """Wait for what is on its way; it is applied at its own time all the same."""
        if self.rounds is not None:
            self.rounds.rest()

    def detach(self) -> None:
        """From now on plain DDP. All ranks call it."""
        if self.rounds is not None:
            self._back(self.rounds)
        self.gradients.detach()

    def describe(self) -> dict[str, Any]:
        """Facts for the page, of the pilot and the wire that both share."""
        return self.gradients.describe()

    def stats(self) -> dict[str, Any]:
        """The same facts, and totals over both."""
        return self.gradients.stats()

    def close(self) -> None:
        """End the threads; no backward may follow."""
        self._unwatch()
        self.gradients.close()

    def goes_on_from(self, state_dict: Mapping[str, Any]) -> bool:
        """Whether a state of training apart is of rounds that the pilot may say, and nobody has detached."""
        texts = {str(_spec(rung)) for rung in self.gradients.pilot.rungs if rung.apart}
        return is_apart(state_dict) and state_dict["spec"] in texts and not was_detached(state_dict)

    def state_dict(self) -> dict[str, Any]:
        """Of gradients; where ranks train apart that of `EverySync`, with what gradients still owe beside it."""
        if self.rounds is None:
            return self.gradients.state_dict()
        return {**self.rounds.state_dict(), GRADIENTS: self.gradients.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue there. All ranks call it.

        A state of training apart that ended by `detach` starts afresh, from the model as it is.

        Raises:
            CheckpointError: the state is of another model.
        """
        self._unwatch()
        self.rounds = None
        exchange_on(self._ddp)
        apart = is_apart(state_dict)
        if apart and was_detached(state_dict):
            tell_of_detached(state_dict)
            apart, state_dict = False, {}
        self.gradients.load_state_dict(state_dict.get(GRADIENTS, {}) if apart else state_dict)
        if apart:
            self.rounds = self._crossing.take_up(parse_every(state_dict["spec"]))
            self._watch_rounds()
            self.rounds.load_state_dict({name: value for name, value in state_dict.items() if name != GRADIENTS})
        self._go_where_the_pilot_says()

    def _over(self, *, taken: bool) -> SyncStats:
        if self.rounds is None:
            stats = self.gradients.commit() if taken else self.gradients.abort()
        else:
            stats = self._step_apart(self.rounds, taken=taken)
        begin = time.perf_counter()
        self._go_where_the_pilot_says()
        return replace(stats, waited_s=stats.waited_s + time.perf_counter() - begin)

    def _step_apart(self, rounds: EverySync, *, taken: bool) -> SyncStats:
        begin = time.perf_counter()
        stats = rounds.commit() if taken else rounds.abort()
        spent_s = time.perf_counter() - begin
        seen = Seen()
        if self._gauge is not None:
            self._gauge.add(stats, spent_s, self.gradients.take_transfers())
            ends_round = rounds.steps % rounds.spec.every.steps == 0
            seen = self._gauge.seen(ends_round=ends_round, loss=self.gradients.loss, committed=taken)
        self.gradients.pass_step(seen, _shapes(rounds))
        return stats

    def _go_where_the_pilot_says(self) -> None:
        if self.gradients.detached:
            return
        rung = self.gradients.pilot.at(self.gradients.steps)
        if rung.apart:
            spec, old = _spec(rung), self.rounds
            if old is not None and str(spec) == str(old.spec):
                return
            self.rounds = self._crossing.change(old, spec) if old is not None else self._part(spec)
            self._watch_rounds()
        elif self.rounds is not None:
            self._back(self.rounds)

    def _part(self, spec: EverySpec) -> EverySync:
        """Ranks train apart. Where moves are repeated, nobody has asked yet whether there is a way back."""
        if not isinstance(self.gradients.pilot, Auto):
            self._crossing.check()
        return self._crossing.take_up(spec)

    def _watch_rounds(self) -> None:
        """Rounds begin with the next step, and the pilot hears what they cost."""
        if self.gradients.pilot.watches:
            self._gauge = self._gauge or RoundGauge(self._ddp)
            self._gauge.restart()
            self.gradients.take_transfers()

    def _back(self, rounds: EverySync) -> None:
        self._crossing.go_back(rounds)
        self._unwatch()
        self.rounds = None

    def _unwatch(self) -> None:
        if self._gauge is not None:
            self._gauge.close()
            self._gauge = None


def _spec(rung: Rung) -> EverySpec:
    return parse_every(str(rung))


def _shapes(rounds: EverySync) -> list[Shape]:
    """Parcels as if they were buckets, the last layers' first."""
    parcels = [parcel for fragment in rounds.fragments for parcel in fragment.parcels]
    sizes = [{name: parameter.numel() for name, parameter in parcel.named.items()} for parcel in reversed(parcels)]
    return [Shape(tuple(each), each) for each in sizes]

"""Training apart: each worker takes its own steps, and every H-th starts a round over what it has changed.

    commit / abort      the training thread   counts the step
    Rounds.over         the training thread   which rounds land and start after the step
    Parcel.launch       the training thread   measures agreed - local, hands the parcel to the queue
    Parcel._say         queue thread 0        finds the elements; the round encodes, first collective
    Round._answer       queue thread 1        sum in rank order, re-encode, second collective (sharded exchange)
    Parcel._hear        queue thread 1 or 2   decode
    Fragment.apply      the training thread   outer step on the agreed model, local model along

After DiLoCo (arXiv:2311.08105), with the residuals of SparseLoCo (arXiv:2508.15706).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from trainingkit.core.errors import StepError
from trainingkit.core.logging import LOG
from trainingkit.sync.checks import check_weight
from trainingkit.sync.contract import SyncStats
from trainingkit.sync.control import peers_watched
from trainingkit.sync.every.fragment import Fragment
from trainingkit.sync.every.gradsync import exchange_off, exchange_on
from trainingkit.sync.every.handover import GRADIENTS, is_apart, tell_of_detached, was_detached
from trainingkit.sync.every.landed import Landed, RoundTap, sample_crc32
from trainingkit.sync.every.ledger import Ledger
from trainingkit.sync.every.moments import agree_on_moments
from trainingkit.sync.every.parcel import Wire
from trainingkit.sync.every.paying import pay_rounds
from trainingkit.sync.every.rounds import Rounds
from trainingkit.sync.every.spec import EverySpec
from trainingkit.sync.every.state import check_model, load_fragments, stored
from trainingkit.sync.every.watch import StepWatch
from trainingkit.sync.plain import group_of


class EverySync:
    """A synchroniser whose ranks train on their own between rounds; made by `sync.every.door`.

    `weight` (this rank's tokens in a step) adds up from round to round. A step that a rank gives up (`abort`) counts as
    a step everywhere, with weight 0 there. What holds a non-finite number is never sent: that rank goes on from the
    agreed model.

    Args:
        module: what forward is called on; a DistributedDataParallel is told not to exchange gradients.
        fragments: of `module`'s trainable parameters; the same on all ranks.
        wire: None with one rank.
        ranks: number of ranks.

    Attributes:
        steps: steps so far, on all ranks alike.
    """

    def __init__(
        self,
        module: nn.Module,
        optimizer: Optimizer,
        spec: EverySpec,
        fragments: Sequence[Fragment],
        wire: Wire | None,
        *,
        ranks: int,
    ) -> None:
        self.module = module
        self.weight = 1.0
        self.steps = 0
        self.spec = spec
        self._optimizer = optimizer
        self._wire = wire
        self._ranks = ranks
        self._ledger = Ledger(wire)
        self._rounds = Rounds(fragments, module, optimizer, self._ledger)
        self._detached = False
        self._watch: StepWatch | None = None
        self._last = SyncStats()
        exchange_off(module)

    @property
    def apart(self) -> bool:
        """Whether ranks train on their own: until `detach`."""
        return not self._detached

    @property
    def fragments(self) -> tuple[Fragment, ...]:
        """Shares of the layers, whose rounds start and land together."""
        return self._rounds.fragments

    @property
    def rounds(self) -> int:
        """Rounds started so far, one for each fragment."""
        return self._rounds.started

    @property
    def owner(self) -> int:
        """The shard whose mean this rank encodes again."""
        return self._wire.owner if self._wire is not None else 0

    @property
    def coded(self) -> bool:
        """Whether matrices travel in a codec: there are other ranks, and the text names one."""
        return self._wire is not None and self.spec.codec is not None

    @property
    def scaler(self) -> Any:
        """A GradScaler. Differences of parameters have no scale; but a step that it skips counts as given up."""
        return self._watch.scaler if self._watch is not None else None

    @scaler.setter
    def scaler(self, scaler: Any) -> None:
        if self._watch is not None:
            self._watch.follow(scaler)

    def count_steps_of_optimizer(self) -> None:
        """Take each `optimizer.step()` for a step, in a script that calls neither `commit` nor `abort`."""
        self._watch = StepWatch(self._optimizer, taken=lambda: self._over(taken=True), skipped=self.abort)

    def micro_batch(self, *, last: bool) -> contextlib.AbstractContextManager[object]:
        """Gradients never travel."""
        return contextlib.nullcontext()

    def begin(self) -> None:
        """Nothing to prepare."""

    def commit(self) -> SyncStats:
        """The optimizer has stepped. All ranks call it or `abort`, once a step.

        Raises:
            ConfigError: `weight` cannot be used.
            StepError: the optimizer trains parameters that no round carries.
            PeerLost: a peer is gone.
        """
        return self._last if self._watch is not None else self._over(taken=True)

    def abort(self) -> SyncStats:
        """This rank's optimizer has not stepped; the others' may have. The step counts, and rounds go on."""
        return self._over(taken=False)

    def settle(self) -> bool:
        """Bring all ranks to one model: finish what flies, and exchange what was done since. All ranks call it.

        See `Rounds.finish`, also for a round that is given up.

        Returns:
            Whether there was anything to do.
        """
        return False if self._detached else self._rounds.finish()

    def join(self, group: dist.ProcessGroup, device: torch.device) -> None:
        """One model and one optimizer on all ranks, and nothing owed: settle, agree on moments, pay.

        Where moments cannot be agreed on, ranks have settled, and nothing is paid yet.

        Args:
            group: all ranks, which call it.
            device: on which the group's collectives run.

        Raises:
            StepError: on all ranks alike, where their optimizers cannot become one (`sync.every.moments`).
            PeerLost: a peer is gone.
        """
        self.settle()
        with peers_watched():
            agree_on_moments(self._optimizer, group, device)
            pay_rounds(self._rounds.parcels, self.spec.every, self.owner, group, device)

    @contextlib.contextmanager
    def agreed_weights(self) -> Iterator[None]:
        """The agreed model in place of this rank's own, to evaluate it."""
        parcels = self._rounds.parcels if self.apart else []
        own = [torch.empty_like(parcel.agreed) for parcel in parcels]
        for parcel, room in zip(parcels, own, strict=True):
            parcel.read(room)
            parcel.write(parcel.agreed)
        try:
            yield
        finally:
            for parcel, room in zip(parcels, own, strict=True):
                parcel.write(room)

    def adopt(self) -> None:
        """The local model, the same on all ranks, is the agreed one from now on; nothing flies."""
        self._ledger.restart()
        self._rounds.begin_anew()
        self._rounds.read_agreed()

    def goes_on_from(self, state_dict: Mapping[str, Any]) -> bool:
        """From any state of training apart."""
        return is_apart(state_dict)

    def detach(self) -> None:
        """Become one (`join`); from now on plain DDP. All ranks call it.

        Raises:
            StepError: on all ranks alike, where their optimizers cannot become one (`sync.every.moments`).
            StepError: the model is not in DistributedDataParallel, so nothing would travel any more.
        """
        if not isinstance(self.module, DistributedDataParallel) and self._ranks > 1:
            raise StepError(
                "There is no DistributedDataParallel to go on with.",
                found=type(self.module).__name__,
                expected="a model that was in DistributedDataParallel when it was compressed",
                next_step="Call `settle`, which gives all ranks one model, and wrap it then.",
            )
        if self._detached:
            return
        if isinstance(self.module, DistributedDataParallel) and self._ranks > 1:
            self.join(group_of(self.module), next(self.module.parameters()).device)
        else:
            self.settle()
        self._detached = True
        self._last = SyncStats()
        exchange_on(self.module)

    def describe(self) -> dict[str, Any]:
        """Facts for the page: the settings, and what a step of plain DDP would send in fp32 and in bf16."""
        ring = 2 * (self._ranks - 1) / self._ranks
        dense_bytes = 4 * sum(parcel.agreed.numel() for parcel in self._rounds.parcels)
        return {
            "name": str(self.spec),
            "exempt": str(self._wire.exempt.spec) if self._wire is not None else "",
            "exchange": self._wire.exchange if self._wire is not None else "",
            "fp32_bytes": round(ring * dense_bytes),
            "bf16_bytes": round(ring * dense_bytes / 2),
            **(self._wire.network if self._wire is not None else {}),
        }

    def stats(self) -> dict[str, Any]:
        """The same facts, and totals: steps, rounds, bytes sent, and what decay took from this rank's residuals."""
        decayed = sum(parcel.decayed for parcel in self._rounds.parcels)
        totals = {"steps": self.steps, "rounds": self.rounds, "sent_bytes": self._ledger.sent_bytes, "decayed": decayed}
        return {**self.describe(), **totals}

    def state_dict(self) -> dict[str, Any]:
        """Everything, `agreed` being the same on all ranks (see `sync.every.state`). Rounds that fly are waited for.

        After `detach` the model that DDP keeps the same on all ranks is the agreed one.
        """
        self.rest()
        if self._detached:
            self._rounds.read_agreed()
        counts = {"steps": self.steps, "rounds": self.rounds, "detached": self._detached}
        return {**counts, **stored(self.fragments, self.spec, self.owner)}

    def rest(self) -> None:
        """Wait for the rounds that fly; they are applied at their own time all the same."""
        self._rounds.rest()

    @property
    def tap(self) -> RoundTap | None:
        """Given each round before it is applied (`sync.every.landed`)."""
        return self._rounds.tap

    @tap.setter
    def tap(self, tap: RoundTap | None) -> None:
        self._rounds.tap = tap

    @property
    def repeatable(self) -> bool:
        """Whether what a round agreed on can be had again from its messages: there are other ranks, and no islands."""
        return all(parcel.repeatable for parcel in self._rounds.parcels)

    @property
    def wire_format(self) -> list[Any]:
        """What decides how kept messages are cut and applied: exchange, settings, and which parameters lie together."""
        parcels = [[list(parcel.named) for parcel in fragment.parcels] for fragment in self.fragments]
        return [*(self._wire.named if self._wire is not None else ()), str(self.spec), parcels]

    def progress(self) -> dict[str, Any]:
        """What of the state is no tensor and the same on all ranks."""
        return {"steps": self.steps, "rounds": self.rounds}

    def agreed_crc32(self) -> int:
        """Over a sample of the agreed model's elements."""
        return sample_crc32(self._rounds.parcels)

    def apply_again(self, landed: Landed) -> None:
        """Take the outer step of a round whose messages were kept. The local model and what is owed stay."""
        fragment = self.fragments[landed.fragment]
        for parcel, rows in zip(fragment.parcels, landed.rows, strict=True):
            parcel.apply_again(rows)

    def catch_up(self, progress: Mapping[str, Any]) -> None:
        """Go on where `progress` was asked, from the agreed model, which has the rounds up to there; nothing flies."""
        self._rounds.begin_at_agreed()
        self.steps, self._rounds.started = progress["steps"], progress["rounds"]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue there, local model included, on the rank that made the state. All ranks call it.

        Rounds that fly are waited for and dropped, with all that was done here. A state of gradients starts afresh from
        the local model, also where their synchroniser was detached.

        Raises:
            CheckpointError: the state is of another model.
        """
        self._rounds.drop()
        apart = is_apart(state_dict)
        if (state_dict.get(GRADIENTS, {}) if apart else state_dict).get("own"):
            LOG.warning("the snapshot's residuals were dropped: they are of gradients, and differences travel now")
        if not apart:
            self.adopt()
        else:
            check_model(state_dict, self.fragments)
            load_fragments(state_dict, self.fragments, self.spec, self.owner)
            self.steps, self._rounds.started = state_dict["steps"], state_dict["rounds"]
        if was_detached(state_dict) and not apart:
            tell_of_detached(state_dict)
        self._detached = was_detached(state_dict) and apart
        exchange_on(self.module) if self._detached else exchange_off(self.module)

    def close(self) -> None:
        """End the queue's threads."""
        if self._wire is not None:
            self._wire.queue.close()

    def _over(self, *, taken: bool) -> SyncStats:
        if self._detached:
            return SyncStats()
        check_weight(self.weight)
        self.steps += 1
        if not taken:
            self._rounds.heal_where_broken()
        self._rounds.over(self.steps, self.weight if taken else 0.0)
        self._last = self._ledger.close_step(alone=not taken)
        return self._last

"""The DDP door: a communication hook that sends each bucket through codec and exchange, overlapped with backward.

    Squeezed._on_bucket      autograd thread    a bucket is ready: which door is it for?
    CodedDoor.send           autograd thread    hands the round to the queue; `sync.codeddoor` lists the functions of
                                                the queue's threads that touch the bucket then
    DenseDoor.send           autograd thread    starts DDP's own all-reduce (`sync.densedoor`)
DDP waits for the futures at the end of backward. Then the step is committed or aborted here.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from trainingkit.exchange.clock import StageClock
from trainingkit.exchange.lane import Lane
from trainingkit.exchange.meter import Transfer, WireMeter
from trainingkit.exchange.queue import STAGES, OrderedQueue
from trainingkit.exchange.registry import HIERARCHICAL
from trainingkit.sync.agreed import Agreed, Tap, mean_again
from trainingkit.sync.auto.adaptive import Adaptive
from trainingkit.sync.auto.ladder import PLAIN
from trainingkit.sync.auto.seen import Seen
from trainingkit.sync.briefing import Briefing
from trainingkit.sync.buckets import Buckets, Codecs, Shape
from trainingkit.sync.checks import check_exchanged, check_weight
from trainingkit.sync.codeddoor import CodedDoor
from trainingkit.sync.contract import SyncStats
from trainingkit.sync.dense import DenseReduce
from trainingkit.sync.densedoor import DenseDoor
from trainingkit.sync.every.handover import is_apart, tell_of_detached, was_detached
from trainingkit.sync.every.parcel import Wire
from trainingkit.sync.exempt import parameter_names
from trainingkit.sync.gauge import StepGauge
from trainingkit.sync.pilot import Pilot
from trainingkit.sync.plain import group_of
from trainingkit.sync.residualstate import state_in


class Squeezed:
    """Squeezes the gradients of a DDP model; made by `sync.doors.squeeze`.

    A step's residuals are written beside the old ones. `commit` swaps them in; `abort` drops them. Who calls neither
    (a plain training loop) has each backward committed when the next one starts, unless a value was not finite.

    Args:
        ddp: the model; its one communication hook is taken.
        codecs: what carries which elements; its matrices' codecs are those of the pilot's rungs.
        lanes: as many as the exchange needs, on `meter`.
        pilot: says how each step travels.
        dense_steps: steps at the start of the process that travel in DDP's own all-reduce (two where DDP is going to
            rebuild its buckets).
        meter: of the lanes.
        network: what is known of it, for the page.
        values: says in which numbers a bucket travels, where that is not the rung's business.

    Attributes:
        weight: this rank's weight in the mean, for example its tokens; equal weights give DDP's mean. A residual is
            paid with the weight of the step that carries it, and kept where that is zero. Plain DDP knows no weights.
        scaler: a GradScaler, whose scale is taken out before the residual is added and put back after.
        loss: of this rank's samples in the step, for the pilot's guards; NaN where nobody says it.
        steps: exchanges made so far.
    """

    def __init__(
        self,
        ddp: DistributedDataParallel,
        codecs: Codecs,
        lanes: Sequence[Lane],
        *,
        squeezed: set[str],
        pilot: Pilot,
        meter: WireMeter,
        network: Mapping[str, Any],
        values: Adaptive,
        dense_steps: int = 0,
    ) -> None:
        ddp.register_comm_hook(self, _hook)
        self.module = ddp
        self.weight = 1.0
        self.scaler: Any = None
        self.loss = math.nan
        self.steps = 0
        self.pilot = pilot
        self.values = values
        self._codecs = codecs
        self._lanes = lanes
        self._squeezed = squeezed
        self._meter = meter
        self._network = network
        self._ranks = dist.get_world_size(group_of(ddp))
        self._dense_left = dense_steps
        self._detached = False
        self._names = parameter_names(ddp.module)
        self._dense_bytes = 4 * sum(p.numel() for p in ddp.module.parameters() if p.requires_grad)
        self._clock = StageClock()
        self._gauge = StepGauge(ddp, meter, self._clock)
        normalise = any(rung.normalise for rung in pilot.rungs)
        self._buckets = Buckets(
            codecs, lanes, squeezed, clock=self._clock, weight=lambda: self.weight, normalise=normalise
        )
        self._rank = self._buckets.owner
        reduce = DenseReduce(group_of(ddp), meter)
        self._dense = DenseDoor(reduce, self._buckets, self._gauge, ranks=self._ranks, rank=self._rank)
        self._rung = pilot.at(0)
        self._briefing = Briefing(pilot, self._buckets, self._ranks)
        self._owes = True
        self._pays = False
        self._unjudged = False
        self._counted_bytes = 0
        self._queue = OrderedQueue("exchange", stages=max(STAGES, len(lanes) + 1))
        samples = pilot.watches and codecs.exchange != HIERARCHICAL  # there a later stage encodes
        self._coded = CodedDoor(self._buckets, self._queue, self._gauge, self._clock, values, samples=samples)

    @property
    def tap(self) -> Tap | None:
        """Told of every bucket's agreed messages, where somebody keeps them (see `sync.agreed`)."""
        return self._coded.tap

    @tap.setter
    def tap(self, tap: Tap | None) -> None:
        self._coded.tap = tap

    @property
    def detached(self) -> bool:
        """Whether the model is plain DDP's from now on."""
        return self._detached

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
            **self.pilot.describe(),
            "settled": self.pilot.settled(self.steps),
            **self.values.describe(),
            "exempt": str(self._codecs.exempt.spec),
            "exchange": self._codecs.exchange,
            **self._network,
            "fp32_bytes": round(ring * self._dense_bytes),
            "bf16_bytes": round(ring * self._dense_bytes / 2),
            "detached": self._detached,
        }

    def state_dict(self) -> dict[str, Any]:
        """Steps, whether detached, and residuals and moments by parameter name (see `sync.residualstate`).

        All ranks call it (or `commit`) after the same steps: a step that nobody judged is settled here.
        """
        self._settle()
        return {**self.progress(), **self._buckets.state()}

    def progress(self) -> dict[str, Any]:
        """What of the state is no tensor, as the last step that was judged left it."""
        pilot = self.pilot.state_dict()
        values = self.values.state_dict()
        chosen = {**({"pilot": pilot} if pilot else {}), **({"values": values} if values else {})}
        return {"steps": self.steps, "detached": self._detached, **chosen}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue there, on the rank that made the state.

        An empty one (of plain DDP), and one of training apart, start afresh.

        Raises:
            CheckpointError: residuals or moments are of another model.
        """
        state = state_in(state_dict)
        self._buckets.load(state, {name: parameter.numel() for parameter, name in self._names.items()})
        self._forget_step()
        self._owes = True
        apart = is_apart(state_dict)
        if apart and was_detached(state_dict):
            tell_of_detached(state_dict)
        self.catch_up({} if apart else state_dict)

    def catch_up(self, progress: Mapping[str, Any]) -> None:
        """Go on where `progress` was asked; residuals and moments stay as they are."""
        self.steps = progress.get("steps", 0)
        self.pilot.load_state_dict(progress.get("pilot", {}))
        self.values.load_state_dict(progress.get("values", {}))
        self._detached = progress.get("detached", False)

    @property
    def wire_format(self) -> list[Any]:
        """What decides how kept messages are cut: the exchange, the granule, and which codecs there are."""
        return [self._codecs.exchange, self._codecs.granule, sorted(self._codecs.matrices)]

    def mean_again(self, kept: Iterable[Agreed]) -> dict[str, torch.Tensor]:
        """Gradients by name from one step's kept messages, in place of an exchange; see `sync.agreed`."""
        sizes = {name: parameter.numel() for parameter, name in self._names.items()}
        return mean_again(self._buckets, kept, sizes, rank=self._rank)

    def wire(self, codec: str) -> Wire:
        """Lanes, threads and clock, for differences of models while gradients do not travel.

        Args:
            codec: of matrices; one of the pilot's rungs'.
        """
        matrices, exempt, exchange = self._codecs.matrices[codec], self._codecs.exempt, self._codecs.exchange
        return Wire(matrices, exempt, exchange, self._lanes, self._squeezed, self._network, self._clock, self._queue)

    def take_transfers(self) -> list[Transfer]:
        """What passed the lanes since the last call, while gradients do not travel."""
        return self._meter.take()

    def pass_step(self, seen: Seen, shapes: Sequence[Shape]) -> None:
        """A step in which no gradients travelled is over: it counts, and the pilot hears of it. All ranks call it.

        Args:
            shapes: in place of DDP's buckets, where none has been seen yet.
        """
        self._briefing.shapes = self._briefing.shapes or list(shapes)
        self.steps += 1
        self._briefing.over(self.steps, seen, loads=True)

    def rejoin(self) -> None:
        """Gradients travel again from the next step on."""
        self._counted_bytes = self._total_bytes()
        self._forget_step()

    def close(self) -> None:
        """End the queue's threads; the hook must not be called again."""
        self._queue.close()
        self._gauge.close()

    def _on_bucket(self, bucket: GradBucket) -> Future[torch.Tensor]:
        if bucket.index() == 0:
            self._begin_exchange(bucket.buffer().device)
        shape = Shape.of(bucket, self._names)
        self._briefing.shapes.append(shape)
        self._gauge.ready()
        if self._is_dense:
            return self._dense.send(bucket.buffer(), shape, scale=self._scale(), pays=self._pays)
        return self._coded.send(bucket.buffer(), shape, scale=self._scale())

    @property
    def _is_dense(self) -> bool:
        return self._detached or self._dense_left > 0 or self._rung.codec == PLAIN

    def _begin_exchange(self, device: torch.device) -> None:
        self._settle()
        self._unjudged = True
        check_weight(self.weight)
        self._briefing.shapes = []
        self._rung = self.pilot.at(self.steps)
        self._pays = self._owes and self._dense_left == 0 and not self._detached and self._is_dense
        if self._is_dense:
            waits = self._pays or self._dense_left > 0
            self._dense.begin(None if self._detached else self.weight, device, waits=waits)
        self._coded.begin(self.steps, self._rung)

    def _scale(self) -> float:
        return float(self.scaler.get_scale()) if self.scaler is not None else 1.0

    def _settle(self) -> None:
        """Commit a backward that nobody judged."""
        if self._unjudged:
            self._take()

    def _take(self) -> SyncStats:
        sound = self._coded.sound and self._dense.sound
        if sound:
            self._coded.commit()
            self._dense.commit()
            self._owes = bool(self._coded.open) or (self._owes and not self._pays)
        return self._close_step(committed=sound)

    def _close_step(self, *, committed: bool = False) -> SyncStats:
        if not self._unjudged:
            return SyncStats()
        hidden, exposed = self._clock.split(self._gauge.ready_s)
        exposed.pop("wire")
        seen = self._gauge.seen(loss=self.loss, committed=committed) if self.pilot.watches else Seen()
        if self._dense_left > 0 or self._detached:
            seen = Seen(loss=seen.loss, committed=seen.committed)
        costs = self._coded.costs()
        self._forget_step()
        self.steps += 1
        self._dense_left = max(0, self._dense_left - 1)
        total = self._total_bytes()
        sent, self._counted_bytes = total - self._counted_bytes, total
        if not self._detached:
            self._briefing.over(self.steps, seen, loads=self._dense_left == 0)
            self.values.over(self.steps, self._rung, self.pilot.at(self.steps), costs, committed=committed)
        return SyncStats(wire_bytes=sent, hidden=hidden, exposed=exposed)

    def _forget_step(self) -> None:
        self._clock.reset()
        self._gauge.reset()
        self._dense.forget()
        self._coded.forget()
        self._unjudged = False

    def _total_bytes(self) -> int:
        return self._dense.sent_bytes + sum(lane.sent_bytes for lane in self._lanes)


def _hook(squeezed, bucket):  # no annotations: DDP compares them with its types, and ours are texts
    return squeezed._on_bucket(bucket)

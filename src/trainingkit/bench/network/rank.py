"""One rank of the bench: its contenders, each with a copy of the model and an optimizer, and how they take a turn.

All hosts of a lab share one kernel, hence one clock. A turn begins at an agreed moment and lasts until the last rank
has finished it; no barrier's latency is in it.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from trainingkit.bench.contender import Builder, Contender, Setting, builder_of
from trainingkit.bench.naming import read_name
from trainingkit.bench.network.interfaces import sent_bytes
from trainingkit.bench.network.spec import AGAIN, NetworkSpec
from trainingkit.bench.paired import ContenderFailed
from trainingkit.cluster.meeting import Meeting
from trainingkit.core.section import choose
from trainingkit.data import SOURCES
from trainingkit.data.batch import Batch, gather
from trainingkit.data.contract import Corpus
from trainingkit.data.evaluation import eval_batches
from trainingkit.data.order import SampleOrder
from trainingkit.models import MODELS
from trainingkit.optim import OPTIMIZERS
from trainingkit.precision.compute import forward_context
from trainingkit.trainer.evaluate import evaluate
from trainingkit.trainer.rng import seed_all

PEAK_LR = 1e-3
WARMUP_STEPS = 10
CLIP_NORM = 1.0
LEAST_LEAD_S = 0.02
CPU = torch.device("cpu")


@dataclass
class Entrant:
    """A contender in this rank, with all that belongs to its copy of the model.

    Args:
        compute: "bf16" or "fp32".
        batch_size: samples a step on each host.
        peak_rates: of each of the optimizer's groups.
        factor: share of the peak rate by the 0-based number of the step.
    """

    name: str
    contender: Contender
    model: nn.Module
    optimizer: torch.optim.Optimizer
    compute: str
    batch_size: int
    peak_rates: list[float]
    factor: Callable[[int], float]
    steps: int = 0
    losses: list[list[float]] = field(default_factory=list)


@dataclass(frozen=True)
class Turn:
    """What one turn cost: seconds until the last rank was done; this rank's bytes a step, counted and said."""

    seconds: float
    wire_bytes: float | None
    said_bytes: float


class Rank:
    """This process's part.

    Args:
        compute: "bf16" or "fp32".
    """

    def __init__(self, spec: NetworkSpec, meeting: Meeting, compute: str) -> None:
        self.spec = spec
        self.meeting = meeting
        self.compute = compute
        self.world_size = dist.get_world_size(meeting.group)
        self.scale = spec.job()
        self.corpus: Corpus = choose(SOURCES, {"kind": "stdlib", "seq_len": self.scale.seq_len}, field="data").open()
        self._order = SampleOrder(len(self.corpus.train), spec.seed)
        self._lead_s = LEAST_LEAD_S

    def enter(
        self,
        name: str,
        build: Builder | None = None,
        *,
        rates: Mapping[str, float] | None = None,
        factor: Callable[[int], float] | None = None,
    ) -> Entrant:
        """Build a contender from the same seed as all others; "X again" is a second copy of "X". Collective.

        Args:
            build: in place of the builder of that name.
            rates: settings of its optimizer, where the name does not give them; default: `PEAK_LR`.
            factor: share of the peak rate by the 0-based number of the step; default: a linear warm-up.
        """
        seed_all(self.spec.seed)
        named = read_name(name.removesuffix(AGAIN))
        model = choose(MODELS, self.scale.model, field="model").build(self.corpus.info)
        settings = {**({"lr": PEAK_LR} if rates is None else rates), **named.optimizer}
        optimizer = choose(OPTIMIZERS, settings, field="optimizer").build(model)
        timeout = datetime.timedelta(seconds=self.spec.timeout_s)
        group = dist.new_group(backend="gloo", timeout=timeout)
        assert isinstance(group, dist.ProcessGroup)
        setting = Setting(group, self.spec.codec, self.spec.timeout_s, optimizer, self.spec.max_every)
        build = build or builder_of(named.way)
        peaks = [parameters["lr"] for parameters in optimizer.param_groups]
        compute, batch = named.compute or self.compute, named.batch or self.scale.batch_size
        return Entrant(name, build(model, setting), model, optimizer, compute, batch, peaks, factor or warming)

    def turn(self, entrant: Entrant, steps: int, *, rests: bool = False) -> Turn:
        """Take `steps` steps, beginning at the same moment as the other ranks.

        Args:
            rests: the turn lasts until nothing is on its way any more.

        Raises:
            ContenderFailed: on all ranks, when it failed on any.
        """
        batches = [self.batch(entrant, number) for number in range(steps)]
        start_s = self._agreed_start()
        before = sent_bytes()
        said, problem = 0, ""
        try:
            for batch in batches:
                said += self.step(entrant, batch)
            if rests:
                entrant.contender.rest()
        except RuntimeError as error:
            problem = str(error).splitlines()[0][:300]
            self.meeting.store.set(f"failed/{entrant.name}", f"rank {self.meeting.rank}: {problem}")
        own_s = time.monotonic() - start_s
        entrant.optimizer.zero_grad(set_to_none=True)
        seconds, failed = self._most(own_s, 1.0 if problem else 0.0)
        if failed:
            raise ContenderFailed(self.meeting.store.get(f"failed/{entrant.name}").decode())
        after = sent_bytes()
        counted = None if before is None or after is None else (after - before) / steps
        return Turn(seconds / steps, counted, said / steps)

    def look(self, entrant: Entrant, *, even_if_not_due: bool = False) -> None:
        """Note the validation loss when one is due. Collective."""
        due = even_if_not_due or entrant.steps % self.spec.eval_every == 0
        if not entrant.contender.agrees or not due:
            return
        share = eval_batches(
            self.corpus.validation, self.scale.batch_size, self.meeting.rank, self.world_size, self.scale.eval_samples
        )
        group = self.meeting.group
        with entrant.contender.agreed():
            metrics, _ = evaluate(entrant.model, share, info=None, group=group, compute=entrant.compute, device=CPU)
        entrant.losses.append([float(entrant.steps), metrics["loss"]])

    def agree(self, value: float) -> float:
        """Rank 0's value on every rank."""
        tensor = torch.tensor([value], dtype=torch.float64)
        dist.broadcast(tensor, src=0, group=self.meeting.group)
        return float(tensor)

    def facts(self, entrant: Entrant) -> dict[str, Any]:
        """What was run, for the page."""
        return {
            "parameters": sum(p.numel() for p in entrant.model.parameters()),
            "batch": f"{self.scale.batch_size} x {self.scale.seq_len} bytes on each host",
            "data": self.corpus.info.name,
            "compute": self.compute,
            "threads": torch.get_num_threads(),
            "optimizer": f"fused AdamW, peak rate {PEAK_LR} after {WARMUP_STEPS} steps",
            "validation_samples": self.scale.eval_samples,
        }

    def step(self, entrant: Entrant, batch: Batch) -> int:
        """One step, whenever this rank comes to it; returns the bytes that the contender says it sent."""
        contender, optimizer = entrant.contender, entrant.optimizer
        for group, peak in zip(optimizer.param_groups, entrant.peak_rates, strict=True):
            group["lr"] = peak * entrant.factor(entrant.steps)
        optimizer.zero_grad(set_to_none=True)
        with contender.backward():
            with forward_context(entrant.compute, CPU):
                loss = contender.module(**batch).loss
            loss.backward()
        torch.nn.utils.clip_grad_norm_(entrant.model.parameters(), CLIP_NORM)
        optimizer.step()
        entrant.steps += 1
        return contender.finish()

    def batch(self, entrant: Entrant, ahead: int = 0) -> Batch:
        """This rank's batch of the contender's next step, or one further ahead; the same for all of one batch size."""
        size = entrant.batch_size
        first = ((entrant.steps + ahead) * self.world_size + self.meeting.rank) * size
        return gather(self.corpus.train, self._order.indices(first, size))

    def _agreed_start(self) -> float:
        """Wait for a moment that all ranks know before it comes."""
        asked_s = time.monotonic()
        start_s = self._most(asked_s + self._lead_s)[0]
        now_s = time.monotonic()
        self._lead_s = min(1.0, max(LEAST_LEAD_S, 2 * (now_s - asked_s), self._lead_s / 2))
        time.sleep(max(0.0, start_s - now_s))
        return start_s

    def _most(self, *values: float) -> list[float]:
        """The largest over all ranks, of each value."""
        tensor = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=self.meeting.group)
        return tensor.tolist()


def warming(step: int) -> float:
    """Linear warm-up over `WARMUP_STEPS`, then the peak rate."""
    return min(1.0, (step + 1) / WARMUP_STEPS)

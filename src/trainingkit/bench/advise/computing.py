"""What a step costs without any exchange: computing, when each bucket's gradients are ready, the update.

DDP runs with a communication hook that sends nothing and notes the moment. All ranks compute at the same time, so
that those on one host share its cores as they will in training; the slowest rank of a step counts.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import GradBucket
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from trainingkit.precision.compute import forward_context
from trainingkit.sync.buckets import Shape
from trainingkit.sync.exempt import parameter_names
from trainingkit.trainer.loss import call_model, find_loss

WARM_STEPS = 3
"""In the first two DDP puts its buckets in order."""
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Work:
    """What one rank does in a step.

    Args:
        wrap: puts the model into DDP over a group, as training will.
        batches: of which a step takes `accumulate`, one after another, from the start again where they end.
        clip_norm: None: gradients are not clipped.
        compute: "bf16" or "fp32".
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    batches: Sequence[Any]
    wrap: Callable[[nn.Module, dist.ProcessGroup], DistributedDataParallel]
    accumulate: int = 1
    clip_norm: float | None = 1.0
    compute: str = "fp32"

    def batch(self, number: int) -> Any:
        """The micro-batch of that number."""
        return self.batches[number % len(self.batches)]


@dataclass
class Timed:
    """One step: seconds from forward's begin to each bucket's gradients, to the last of all, and of the rest.

    Args:
        cpu_s: of a processor, that this process had until the last gradient.
    """

    ready_s: list[float] = field(default_factory=list)
    shapes: list[Shape] = field(default_factory=list)
    window_s: float = 0.0
    rest_s: float = 0.0
    cpu_s: float = 0.0


@dataclass(frozen=True)
class Computing:
    """Seconds of a step, agreed over ranks; see `Window`.

    Args:
        ready: shares of `hide_s` after which each bucket is ready.
        crowding: seconds that pass while a thread has one of a processor; above 1 where threads share cores.
    """

    compute_s: float
    hide_s: float
    rest_s: float
    ready: tuple[float, ...]
    crowding: float


class Stopwatch:
    """Takes steps of a model whose gradients are not exchanged, and times them.

    Args:
        work: what a step is.
        group: over all ranks; used between the parts of a step only.
    """

    def __init__(self, work: Work, group: dist.ProcessGroup) -> None:
        self.work = work
        self.group = group
        self._ddp = work.wrap(work.model, group)
        self._names = parameter_names(self._ddp.module)
        self._ddp.register_comm_hook(self, _hook)
        self._begin_s = self._begin_cpu_s = 0.0
        self._kept: list[torch.Tensor] | None = None
        self._timed = Timed()
        self._taken = 0

    def warm(self) -> None:
        """Steps that do not count."""
        for _ in range(WARM_STEPS):
            self.step()

    def step(self) -> Timed:
        """One step, begun together with the other ranks."""
        self._timed = Timed()
        self.work.optimizer.zero_grad(set_to_none=True)
        dist.barrier(group=self.group)
        self._begin_s, self._begin_cpu_s = time.perf_counter(), time.process_time()
        for number in range(self.work.accumulate):
            self._micro(last=number == self.work.accumulate - 1)
        self._timed.window_s = self._timed.ready_s[-1]
        dist.barrier(group=self.group)
        before = time.perf_counter()
        self._update()
        self._timed.rest_s = time.perf_counter() - before
        return self._timed

    def gradients(self) -> tuple[list[Shape], list[torch.Tensor]]:
        """Shapes and copies of one more step's buckets, in their order."""
        self._kept = kept = []
        shapes = self.step().shapes
        self._kept = None
        return shapes, kept

    def computing(self, steps: Sequence[Timed]) -> Computing:
        """What some steps say together. Collective."""
        worst = [self.most(step.window_s, step.rest_s) for step in steps]
        compute_s = statistics.median(window_s for window_s, _ in worst)
        cpu_s = statistics.median(self.most(step.cpu_s)[0] for step in steps)
        shares = [[ready_s / step.window_s for ready_s in step.ready_s] for step in steps]
        ends = [statistics.median(of) for of in zip(*shares, strict=True)]
        hide = max(1e-9, 1.0 - ends[0])
        return Computing(
            compute_s=compute_s,
            hide_s=compute_s * hide,
            rest_s=statistics.median(rest_s for _, rest_s in worst),
            ready=tuple((end - ends[0]) / hide for end in ends),
            crowding=max(1.0, compute_s * torch.get_num_threads() / cpu_s),
        )

    def most(self, *values: float) -> list[float]:
        """The largest over ranks, of each value. Collective."""
        tensor = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=self.group)
        return tensor.tolist()

    def _micro(self, *, last: bool) -> None:
        batch = self.work.batch(self._taken)
        self._taken += 1
        self._ddp.require_backward_grad_sync = last
        with forward_context(self.work.compute, CPU):
            loss = find_loss(call_model(self._ddp, batch))
        loss.backward()

    def _update(self) -> None:
        if self.work.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.work.model.parameters(), self.work.clip_norm)
        self.work.optimizer.step()

    def _note(self, bucket: GradBucket) -> Future[torch.Tensor]:
        self._timed.ready_s.append(time.perf_counter() - self._begin_s)
        self._timed.cpu_s = time.process_time() - self._begin_cpu_s
        self._timed.shapes.append(Shape.of(bucket, self._names))
        if self._kept is not None:
            self._kept.append(bucket.buffer().clone())
        done: Future[torch.Tensor] = Future()
        done.set_result(bucket.buffer())
        return done


def _hook(stopwatch, bucket):  # no annotations: DDP compares them with its types, and ours are texts
    return stopwatch._note(bucket)

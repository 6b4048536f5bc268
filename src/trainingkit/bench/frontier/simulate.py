"""One run of a task under a scheme, with all workers in this process, one after the other.

Gradient side: each worker's gradient of its own batch is agreed on, and one optimizer takes the mean. Update side:
each worker takes steps of its own optimizer from the agreed model; what it moved by is agreed on and added to the
agreed model (outer SGD at rate 1), from which all go on.

Of one worker with exact values the gradient side is plain training, bit for bit.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import nn

from trainingkit.bench.frontier.optimizing import make_optimizing
from trainingkit.bench.frontier.scheme import Scheme, Side
from trainingkit.bench.frontier.task import Job, Task
from trainingkit.bench.frontier.wire import Named, Wire
from trainingkit.sync.exempt import squeezed_names

WORKERS = 4


@dataclass(frozen=True)
class Outcome:
    """What a run came to.

    Attributes:
        value: the task's final figure; None when the run diverged.
        bits: of one worker's messages, one way, per trainable parameter and step, warm-up included.
        carried_bits: the same of the tensors that the coder carries, per parameter of theirs.
        parameters, carried_parameters: how many are trained; how many of them the coder carries.
        diverged_at: the step whose loss was not finite.
        losses: training loss per step, mean over workers.
    """

    value: float | None
    bits: float
    carried_bits: float
    parameters: int
    carried_parameters: int
    diverged_at: int | None
    losses: list[float]


@dataclass(frozen=True)
class Setup:
    """What both sides need: the task with its data, how to agree, and the model that all begin with."""

    task: Task
    job: Job
    scheme: Scheme
    wire: Wire
    model: nn.Module
    carried: set[str]
    workers: int
    seed: int

    def gradients(self, model: nn.Module, step: int, worker: int) -> float:
        """Put the gradient of the worker's batch into the model's `grad`s; the loss."""
        batch = self.job.batch(step * self.workers + worker, self.seed)
        model.zero_grad(set_to_none=True)
        loss = self.job.loss(model, batch)
        loss.backward()
        return float(loss.detach())


def simulate(task: Task, job: Job, scheme: Scheme, *, seed: int, workers: int = WORKERS) -> Outcome:
    """Train and evaluate. A function of its arguments.

    Args:
        job: the task, opened.
    """
    torch.manual_seed(seed)
    model = job.build(seed)
    model.train()
    carried = squeezed_names(model) & trained(model).keys()
    shapes = {name: p.shape for name, p in trained(model).items()}
    wire = Wire(shapes, carried, scheme, workers=workers, steps=task.steps)
    run = _SIDES[scheme.side](Setup(task, job, scheme, wire, model, carried, workers, seed))
    losses: list[float] = []
    for loss in run:
        losses.append(loss)
        if not math.isfinite(loss):
            break
    return _outcome(job, model, wire, losses, {name: shape.numel() for name, shape in shapes.items()}, carried)


def trained(model: nn.Module) -> dict[str, nn.Parameter]:
    """The model's trainable parameters by name; a tied one once."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def _gradient_side(run: Setup) -> Iterator[float]:
    """Yields the loss of each step; the model in `run` is trained."""
    optimizing = make_optimizing(run.model, run.carried, run.task, run.scheme)
    parameters = trained(run.model)
    corrected = run.scheme.momentum_correction > 0
    for step in range(run.task.steps):
        losses, own = [], []
        for worker in range(run.workers):
            losses.append(run.gradients(run.model, step, worker))
            if corrected:
                _clip(run.model, run.task.clip_norm / math.sqrt(run.workers))
            own.append({name: _grad(p) for name, p in parameters.items()})
        for name, mean in run.wire.agree(step, own).items():
            parameters[name].grad = mean
        if not corrected:
            _clip(run.model, run.task.clip_norm)
        optimizing.step(step)
        yield sum(losses) / run.workers


def _update_side(run: Setup) -> Iterator[float]:
    """Yields the loss of each step; the model in `run` is the agreed one, worker 0's local steps are not in it."""
    agreed = trained(run.model)
    locals_ = [copy.deepcopy(run.model) for _ in range(run.workers)]
    optimizers = [make_optimizing(model, run.carried, run.task, run.scheme) for model in locals_]
    for step in range(run.task.steps):
        losses = []
        for worker, (model, optimizing) in enumerate(zip(locals_, optimizers, strict=True)):
            losses.append(run.gradients(model, step, worker))
            _clip(model, run.task.clip_norm)
            optimizing.step(step)
        if (step + 1) % run.scheme.every == 0 or step + 1 == run.task.steps:
            _meet(run.wire, step, agreed, [trained(model) for model in locals_])
        yield sum(losses) / run.workers


@torch.no_grad()
def _meet(wire: Wire, step: int, agreed: dict[str, nn.Parameter], own: list[dict[str, nn.Parameter]]) -> None:
    """Agree on what the workers moved by, add it to the agreed model, and set all workers to that."""
    moved: list[Named] = [{name: p - agreed[name] for name, p in parameters.items()} for parameters in own]
    for name, mean in wire.agree(step, moved).items():
        agreed[name].add_(mean)
        for parameters in own:
            parameters[name].copy_(agreed[name])


def _outcome(
    job: Job, model: nn.Module, wire: Wire, losses: list[float], sizes: dict[str, int], carried: set[str]
) -> Outcome:
    model.eval()
    value = job.evaluate(model) if math.isfinite(losses[-1]) else math.nan
    parameters, carried_parameters = sum(sizes.values()), sum(sizes[name] for name in carried)
    is_finite = math.isfinite(value)
    return Outcome(
        value=value if is_finite else None,
        bits=wire.bits / parameters / len(losses),
        carried_bits=wire.carried_bits / max(1, carried_parameters) / len(losses),
        parameters=parameters,
        carried_parameters=carried_parameters,
        diverged_at=None if is_finite else len(losses),
        losses=[loss for loss in losses if math.isfinite(loss)],
    )


def _grad(parameter: nn.Parameter) -> torch.Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


def _clip(model: nn.Module, norm: float) -> None:
    torch.nn.utils.clip_grad_norm_(model.parameters(), norm)


_SIDES: dict[Side, Callable[[Setup], Iterator[float]]] = {"gradient": _gradient_side, "update": _update_side}

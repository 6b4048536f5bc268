"""The optimizer of a simulated run and its schedule: AdamW, or Muon for matrices with AdamW for the rest.

Muon is torch's (K. Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024). It takes matrices
only, so a convolution's weight [out, in, h, w] is shown to it as [out, in * h * w], in the same memory.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import nn
from torch.optim import AdamW, Muon, Optimizer

from trainingkit.bench.frontier.scheme import OptimizerName, Scheme
from trainingkit.bench.frontier.task import Task
from trainingkit.optim import OPTIMIZERS, SCHEDULES

BETA1 = 0.9
MUON_MOMENTUM = 0.95


class Optimizing:
    """Optimizers that step together under one schedule.

    Args:
        optimizers: each group's `lr` is its peak rate.
        factor: share of the peak rate by step.
        shown: (a matrix that an optimizer holds, the parameter whose memory it is).
    """

    def __init__(
        self,
        optimizers: list[Optimizer],
        factor: Callable[[int], float],
        shown: list[tuple[nn.Parameter, nn.Parameter]],
    ) -> None:
        self._groups = [(group, float(group["lr"])) for optimizer in optimizers for group in optimizer.param_groups]
        self._optimizers = optimizers
        self._factor = factor
        self._shown = shown

    def step(self, step: int) -> None:
        """Update the parameters from their gradients at the rate of that step."""
        for matrix, parameter in self._shown:
            matrix.grad = None if parameter.grad is None else parameter.grad.flatten(1)
        factor = self._factor(step)
        for group, peak in self._groups:
            group["lr"] = peak * factor
        for optimizer in self._optimizers:
            optimizer.step()


def make_optimizing(model: nn.Module, carried: set[str], task: Task, scheme: Scheme) -> Optimizing:
    """The scheme's optimizer over the model's trainable parameters.

    With momentum correction the momentum of carried tensors is kept on the workers, so the optimizer has none of its
    own for them; exempt tensors keep theirs.
    """
    schedule = SCHEDULES.get("cosine")(warmup_steps=task.warmup_steps, final=0.0)
    optimizers, shown = _MAKERS[scheme.optimizer](model, carried, task, scheme.momentum_correction == 0)
    return Optimizing(optimizers, lambda step: schedule.factor(step, task.steps), shown)


Made = tuple[list[Optimizer], list[tuple[nn.Parameter, nn.Parameter]]]


def _adamw(model: nn.Module, carried: set[str], task: Task, has_momentum: bool) -> Made:
    settings = {"lr": task.lr, "weight_decay": task.weight_decay, "beta2": task.beta2}
    optimizer = OPTIMIZERS.get("adamw")(beta1=BETA1, **settings).build(model)
    if not has_momentum:
        _stop_momentum(optimizer, {p for name, p in model.named_parameters() if name in carried}, task)
    return [optimizer], []


def _stop_momentum(optimizer: Optimizer, without: set[nn.Parameter], task: Task) -> None:
    """Give those parameters groups of their own, with beta1 = 0 and all else as before."""
    for group in list(optimizer.param_groups):
        moved = [p for p in group["params"] if p in without]
        group["params"] = [p for p in group["params"] if p not in without]
        if moved:
            optimizer.add_param_group({**group, "params": moved, "betas": (0.0, task.beta2)})


def _muon(model: nn.Module, carried: set[str], task: Task, has_momentum: bool) -> Made:
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    shown = [(nn.Parameter(p.data.flatten(1)), p) for name, p in named if name in carried]
    momentum = MUON_MOMENTUM if has_momentum else 0.0
    matrices = [matrix for matrix, _ in shown]
    muon = Muon(matrices, lr=task.muon_lr, momentum=momentum, weight_decay=task.weight_decay)
    rest = [p for name, p in named if name not in carried]
    return [muon, AdamW(rest, lr=task.lr, betas=(BETA1, task.beta2), weight_decay=0.0, fused=True)], shown


_MAKERS: dict[OptimizerName, Callable[[nn.Module, set[str], Task, bool], Made]] = {"adamw": _adamw, "muon": _muon}

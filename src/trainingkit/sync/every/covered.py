"""Parameters that began to train after rounds were laid out: no round would ever carry them, so they are refused."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn
from torch.optim import Optimizer

from trainingkit.core.errors import StepError


def refuse_uncovered(optimizer: Optimizer, module: nn.Module, covered: Iterable[torch.Tensor]) -> None:
    """Raise StepError where the optimizer trains parameters of the module that are not among those covered.

    Args:
        covered: parameters that rounds carry.
    """
    known = {id(parameter) for parameter in covered}
    stepped = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    names = [
        name
        for name, parameter in module.named_parameters()
        if parameter.requires_grad and id(parameter) in stepped and id(parameter) not in known
    ]
    if names:
        raise StepError(
            "Parameters are trained that were frozen when rounds began: every rank would keep its own.",
            field="optimizer.param_groups",
            found=", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else ""),
            expected="parameters that could be trained when the model was compressed",
            next_step="Unfreeze them before the model is compressed, or build and compress it anew from a snapshot.",
        )

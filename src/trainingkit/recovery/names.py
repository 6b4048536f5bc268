"""Names of a model's tensors, as snapshots use them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from trainingkit.core.errors import CheckpointError
from trainingkit.recovery.store import spec_of

EXTRA_KEY = "_extra_state"
"""Last part of the name under which `Module.state_dict` puts what `get_extra_state` gives."""


def inner(model: nn.Module) -> nn.Module:
    """The model without DistributedDataParallel and torch.compile around it."""
    while True:
        if isinstance(model, DistributedDataParallel):
            model = model.module
        elif isinstance(compiled := getattr(model, "_orig_mod", None), nn.Module):
            model = compiled
        else:
            return model


def model_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Live parameters and persistent buffers by name; one that is tied appears once, under its first name."""
    persistent = {name for name in module.state_dict(keep_vars=True) if not name.endswith(EXTRA_KEY)}
    named = [*module.named_parameters(), *module.named_buffers()]
    return {name: tensor for name, tensor in named if name in persistent}


def extra_state(module: nn.Module) -> dict[str, Any]:
    """What the modules' `get_extra_state` give, by name."""
    return {name: value for name, value in module.state_dict().items() if name.endswith(EXTRA_KEY)}


def set_extra_state(module: nn.Module, name: str, value: Any) -> None:
    """Give one module its extra state back."""
    owner = name.removesuffix(EXTRA_KEY).rstrip(".")
    module.get_submodule(owner).set_extra_state(value)


def group_names(module: nn.Module, optimizer: Optimizer) -> list[list[str]]:
    """Names of the parameters in each of the optimizer's groups, in order.

    Raises:
        CheckpointError: the optimizer holds a parameter that the model does not have.
    """
    names: dict[Tensor, str] = {parameter: name for name, parameter in module.named_parameters()}
    return [[_name_of(parameter, names) for parameter in group["params"]] for group in optimizer.param_groups]


def _name_of(parameter: Tensor, names: Mapping[Tensor, str]) -> str:
    if parameter not in names:
        raise CheckpointError(
            "The optimizer holds a parameter that the model does not have.",
            field="optimizer",
            found=str(spec_of(parameter)),
            expected="parameters of the model that is saved with it",
            next_step="Build the optimizer from model.parameters().",
        )
    return names[parameter]

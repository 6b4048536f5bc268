"""A model and its optimizer as named tensors and JSON, and back, by parameter name.

model/<name>       parameters and persistent buffers; a tied tensor once, under its first name
extra/<name>       a module's extra state when it is a tensor; otherwise in the JSON
optim/, group/     the optimizer's, see `optimstate`
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from trainingkit.recovery import names, optimstate
from trainingkit.recovery.reading import check_fit, check_names
from trainingkit.recovery.store import spec_of


def training_tensors(model: nn.Module, optimizer: Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The whole state: live tensors by name (not copies), and the rest as plain values.

    Args:
        model: may be wrapped in DistributedDataParallel or compiled; names are the inner model's.
        optimizer: over parameters of `model`.

    Raises:
        CheckpointError: the optimizer holds a parameter that the model does not have.
    """
    module = names.inner(model)
    tensors = {f"model/{name}": tensor for name, tensor in names.model_tensors(module).items()}
    extra: dict[str, Any] = {}
    for name, value in names.extra_state(module).items():
        (tensors if isinstance(value, Tensor) else extra)[f"extra/{name}"] = value
    optimizer_tensors, rest = optimstate.flatten(optimizer, names.group_names(module, optimizer))
    return tensors | optimizer_tensors, {"optimizer": rest, "extra_state": extra}


def restore_training(
    model: nn.Module, optimizer: Optimizer, tensors: Mapping[str, Tensor], rest: Mapping[str, Any]
) -> None:
    """Continue where `training_tensors` was called. The snapshot decides: hyper-parameters are overwritten, too.

    Args:
        tensors: as `load_new` gives them, copied; names with none of our prefixes are ignored.
        rest: the second result of `training_tensors`.

    Raises:
        CheckpointError: missing or extra names, other shapes or dtypes, other parameter groups. Nothing has been
            changed then.
    """
    module = names.inner(model)
    targets = {f"model/{name}": tensor for name, tensor in names.model_tensors(module).items()}
    sources = {name: tensor for name, tensor in tensors.items() if name.startswith("model/")}
    check_fit(targets, {name: spec_of(tensor) for name, tensor in sources.items()})
    extra = {n: value for n, value in {**tensors, **rest["extra_state"]}.items() if n.startswith("extra/")}
    check_names(found=extra, expected={f"extra/{name}" for name in names.extra_state(module)})
    optimstate.restore(optimizer, names.group_names(module, optimizer), tensors, rest["optimizer"])
    with torch.no_grad():
        for name, target in targets.items():
            target.copy_(sources[name])
    for name, value in extra.items():
        names.set_extra_state(module, name.removeprefix("extra/"), value)

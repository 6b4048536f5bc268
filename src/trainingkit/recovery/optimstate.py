"""An optimizer's state by parameter name, for any torch.optim.Optimizer.

Our own flattening: torch.distributed.checkpoint.state_dict takes an optimizer step of its own while the state is still
empty, and Optimizer.load_state_dict casts state to the parameter's dtype; either changes bits.

    optim/<parameter>/<key>    state; what is no tensor is in the JSON, `state`
    group/<index>/<key>        hyper-parameters that are tensors; the others are in the JSON, `groups`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from trainingkit.core.errors import CheckpointError
from trainingkit.core.logging import LOG
from trainingkit.recovery.reading import check_names

Names = Sequence[Sequence[str]]
"""Parameter names of each group, in the order of `param_groups`."""


def flatten(optimizer: Optimizer, group_names: Names) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Live tensors by name (not copies), and the rest as plain values."""
    tensors: dict[str, Tensor] = {}
    state: dict[str, dict[str, Any]] = {}
    for name, (parameter, _) in _parameters(optimizer, group_names).items():
        for key, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, Tensor):
                tensors[f"optim/{name}/{key}"] = value
            else:
                state.setdefault(name, {})[key] = value
    groups: list[dict[str, Any]] = []
    for index, (group, names) in enumerate(zip(optimizer.param_groups, group_names, strict=True)):
        hyper = {key: value for key, value in group.items() if key != "params"}
        tensors |= {f"group/{index}/{key}": value for key, value in hyper.items() if isinstance(value, Tensor)}
        groups.append({"params": list(names)} | {k: v for k, v in hyper.items() if not isinstance(v, Tensor)})
    return tensors, {"class": type(optimizer).__qualname__, "groups": groups, "state": state}


def restore(optimizer: Optimizer, group_names: Names, tensors: Mapping[str, Tensor], rest: Mapping[str, Any]) -> None:
    """Put everything back that `flatten` gave; other names in `tensors` are ignored.

    Raises:
        CheckpointError: another class, other parameters or other groups than those of `optimizer`. Nothing has been
            changed then.
    """
    _check_class(optimizer, rest.get("class"))
    _check_groups(group_names, rest["groups"])
    by_name = _parameters(optimizer, group_names)
    state = _unflatten(tensors, rest["state"])
    check_names(found=set(state) | set(by_name), expected=by_name)
    for index, (group, values) in enumerate(zip(optimizer.param_groups, rest["groups"], strict=True)):
        _restore_group(index, group, values, tensors)
    optimizer.state.clear()
    for name, entries in state.items():
        parameter, group = by_name[name]
        optimizer.state[parameter] = {key: _placed(key, v, parameter, group) for key, v in entries.items()}


def _parameters(optimizer: Optimizer, group_names: Names) -> dict[str, tuple[Tensor, Mapping[str, Any]]]:
    """Each parameter by name, with its group."""
    groups = zip(optimizer.param_groups, group_names, strict=True)
    return {name: (p, group) for group, names in groups for name, p in zip(names, group["params"], strict=True)}


def _check_class(optimizer: Optimizer, saved: str | None) -> None:
    """The state of one optimizer says nothing to another, even where its parameters are the same.

    Args:
        saved: the class by name, without its module, which may be renamed; None in snapshots of older versions.
    """
    own = type(optimizer).__qualname__
    if saved not in (None, own):
        raise CheckpointError(
            "The optimizer is not of the class that made the snapshot.",
            field="optimizer",
            found=own,
            expected=saved,
            next_step=f"Build the loop with {saved} again, or begin a new run in another folder.",
        )


def _check_groups(own: Names, saved: Sequence[Mapping[str, Any]]) -> None:
    check_names(found=[n for group in saved for n in group["params"]], expected=[n for group in own for n in group])
    if [list(group) for group in own] != [group["params"] for group in saved]:
        raise CheckpointError(
            "The optimizer's parameter groups are not those of the snapshot.",
            field="optimizer.param_groups",
            found=f"{len(saved)} groups of {[len(group['params']) for group in saved]} parameters",
            expected=f"{len(own)} groups of {[len(group) for group in own]} parameters, in the same order",
            next_step="Resume with the optimizer settings that made the snapshot.",
        )


def _unflatten(tensors: Mapping[str, Tensor], plain: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    state: dict[str, dict[str, Any]] = {name: dict(entries) for name, entries in plain.items()}
    for name, tensor in tensors.items():
        if name.startswith("optim/"):
            parameter, _, key = name.removeprefix("optim/").rpartition("/")
            state.setdefault(parameter, {})[key] = tensor
    return state


def _restore_group(index: int, group: dict[str, Any], values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    prefix = f"group/{index}/"
    stored = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    left = sorted(set(group) - set(values) - set(stored))
    if left:
        LOG.warning("optimizer group %d: the snapshot does not know %s, which stays as built", index, ", ".join(left))
    group.update({key: value for key, value in values.items() if key != "params"})
    for key, tensor in stored.items():
        own = group.get(key)
        group[key] = tensor.to(own.device if isinstance(own, Tensor) else tensor.device, copy=True)


def _placed(key: str, value: Any, parameter: Tensor, group: Mapping[str, Any]) -> Any:
    """A copy where the optimizer keeps it: with the parameter, and with its strides, which fused kernels rely on. A
    step counter stays on the CPU unless the update runs as one kernel.
    """
    if not isinstance(value, Tensor):
        return value
    if key == "step" and not (group.get("fused") or group.get("capturable")):
        return value.clone()
    if value.shape == parameter.shape:
        return torch.empty_like(parameter, dtype=value.dtype, requires_grad=False).copy_(value)
    return value.to(parameter.device, copy=True)

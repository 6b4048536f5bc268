"""The settings of an optimizer's groups besides the learning rate, as a step was taken with them: a loop or a schedule
may change weight decay, betas or momentum in mid-run, and a replay must take the step with the same.

What is recorded of a value says all of it, or says that it does not:

    None, truth value, number, text    itself
    ["tuple", ...], ["list", ...]      what they hold;   ["dict", [key, value], ...]
    ["numpy", dtype, number]           a number of numpy's
    ["tensor", dtype, shape, number]   a tensor of one element
    ["same", ...]                      only compared: a larger tensor by its checksum, a function or type by its name
    ["unknown", type]                  anything else: a step that was taken with it cannot be taken again
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.optim import Optimizer

LEFT_OUT = ("params", "param_names", "lr", "initial_lr")
"""The rate is recorded for itself; `initial_lr` is the schedule's."""
PLAIN = (type(None), bool, int, float, str)
NUMBERS = (bool, int, float)


def settings_of(optimizer: Optimizer) -> tuple[dict[str, Any], ...]:
    """Each group's settings, in JSON values."""
    groups = optimizer.param_groups
    return tuple({name: _recorded(value) for name, value in group.items() if name not in LEFT_OUT} for group in groups)


def unknown_in(groups: Sequence[Mapping[str, Any]]) -> str | None:
    """The first setting of which `settings_of` could not record the value; None where it could of all."""
    return next((name for group in groups for name, value in group.items() if _is(value, "unknown")), None)


def set_settings(optimizer: Optimizer, groups: Sequence[Mapping[str, Any]]) -> str | None:
    """Put back what `settings_of` gave. Returns the name of a setting that is another and cannot be put back."""
    for group, values in zip(optimizer.param_groups, groups, strict=True):
        for name, value in values.items():
            try:
                group[name] = _put_back(group.get(name), value)
            except _Another:
                return name
    return None


class _Another(Exception):
    """What is there is another than was recorded, and cannot become it."""


def _recorded(value: Any) -> Any:
    kind = type(value)
    if kind in PLAIN:
        return value
    if kind in (tuple, list):
        return _or_unknown([kind.__name__, *(_recorded(part) for part in value)])
    if kind is dict and all(type(key) in PLAIN for key in value):
        return _or_unknown(["dict", *([key, _recorded(part)] for key, part in value.items())])
    if isinstance(value, np.generic) and type(value.item()) in NUMBERS:
        return ["numpy", value.dtype.str, value.item()]
    if isinstance(value, torch.Tensor):
        return _recorded_tensor(value)
    name = _name_of(value)
    return ["unknown", kind.__qualname__] if name is None else ["same", name]


def _or_unknown(recorded: list[Any]) -> list[Any]:
    """A container's record; that of a part that could not be recorded, where it holds one."""
    parts = [part[1] for part in recorded[1:]] if recorded[0] == "dict" else recorded[1:]
    return next((part for part in parts if _is(part, "unknown")), recorded)


def _recorded_tensor(tensor: torch.Tensor) -> list[Any]:
    if tensor.layout is not torch.strided or tensor.is_meta:
        return ["unknown", type(tensor).__qualname__]
    form = [str(tensor.dtype), list(tensor.shape)]
    if tensor.numel() == 1 and type(tensor.item()) in NUMBERS:
        return ["tensor", *form, tensor.item()]
    data = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy()
    return ["same", *form, hashlib.blake2b(data.tobytes(), digest_size=16).hexdigest()]


def _name_of(value: Any) -> str | None:
    """What a value is known by to every process that runs the same program; None where that is nothing."""
    if isinstance(value, torch.dtype | torch.device):
        return str(value)
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    found: Any = sys.modules.get(module) if isinstance(module, str) else None
    for part in name.split(".") if isinstance(name, str) else ():
        found = getattr(found, part, None)
    return f"{module}.{name}" if found is value and name else None


def _put_back(there: Any, recorded: Any) -> Any:
    """The recorded value in the form that is there: a tensor is filled, because compiled updates hold on to it."""
    if type(recorded) in PLAIN:
        return recorded
    kind, *rest = recorded
    if kind in ("tuple", "list"):
        inside = list(there) if isinstance(there, tuple | list) else []
        parts = [_put_back(inside[i] if i < len(inside) else None, part) for i, part in enumerate(rest)]
        return tuple(parts) if kind == "tuple" else parts
    if kind == "dict":
        known = there if isinstance(there, dict) else {}
        return {key: _put_back(known.get(key), part) for key, part in rest}
    if kind == "numpy":
        return np.dtype(rest[0]).type(rest[1])
    if kind == "tensor" and isinstance(there, torch.Tensor) and _recorded(there)[:3] == recorded[:3]:
        with torch.no_grad():
            return there.fill_(rest[2])
    if kind == "same" and _recorded(there) == recorded:
        return there
    raise _Another


def _is(recorded: Any, kind: str) -> bool:
    return isinstance(recorded, list) and recorded[0] == kind

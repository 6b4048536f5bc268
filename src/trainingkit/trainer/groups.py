"""The settings of an optimizer's groups besides the learning rate, as a step was taken with them: a loop or a schedule
may change weight decay, betas or momentum in mid-run, and a replay must take the step with the same.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.optim import Optimizer

LEFT_OUT = ("params", "lr", "initial_lr")
"""The rate is recorded for itself; `initial_lr` is the schedule's."""
SEEN = "?"
"""Begins what stands for a setting that cannot be put back: it is only compared."""


def settings_of(optimizer: Optimizer) -> tuple[dict[str, Any], ...]:
    """Each group's settings: numbers, truth values, text, None, and tuples of such; a tensor of one element as its
    number. What stands for any other (a larger tensor, a callable) tells whether it is still the same.
    """
    groups = optimizer.param_groups
    return tuple({name: _plain(value) for name, value in group.items() if name not in LEFT_OUT} for group in groups)


def set_settings(optimizer: Optimizer, groups: Sequence[Mapping[str, Any]]) -> str | None:
    """Put back what `settings_of` gave. Returns the name of a setting that is another and cannot be put back."""
    for group, values in zip(optimizer.param_groups, groups, strict=True):
        for name, value in values.items():
            if not _only_seen(value):
                group[name] = _as(group.get(name), value)
            elif _plain(group.get(name)) != value:
                return name
    return None


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, torch.Tensor):
        return value.item() if value.numel() == 1 else (SEEN, _checksum(value))
    if isinstance(value, tuple | list):
        parts = tuple(_plain(part) for part in value)
        return (SEEN, *parts) if any(_only_seen(part) for part in parts) else parts
    return (SEEN, getattr(value, "__qualname__", type(value).__qualname__))


def _only_seen(value: Any) -> bool:
    return isinstance(value, tuple) and value[:1] == (SEEN,)


def _checksum(tensor: torch.Tensor) -> int:
    return zlib.crc32(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())


def _as(there: Any, value: Any) -> Any:
    """The value in the form that is there: a tensor is filled, because compiled updates hold on to it."""
    if isinstance(there, torch.Tensor):
        return there.fill_(value)
    if isinstance(there, tuple | list) and isinstance(value, tuple) and len(there) == len(value):
        return type(there)(_as(old, new) for old, new in zip(there, value, strict=True))
    return value

"""A worker whose numbers broke down: its moments are forgotten where it goes on from the agreed model."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch.optim import Optimizer


def all_finite(parameters: Iterable[torch.Tensor]) -> bool:
    """Whether every element is."""
    return all(bool(parameter.detach().isfinite().all()) for parameter in parameters)


def forget_broken_moments(optimizer: Optimizer, parameters: Iterable[torch.Tensor]) -> int:
    """Zero an optimizer's state of parameters for which some of it is not finite; step counters stay.

    Returns:
        How many parameters it concerned.
    """
    broken = 0
    for parameter in parameters:
        moments = [v for v in optimizer.state.get(parameter, {}).values() if isinstance(v, torch.Tensor) and v.dim()]
        if not all_finite(moments):
            broken += 1
            for moment in moments:
                moment.zero_()
    return broken

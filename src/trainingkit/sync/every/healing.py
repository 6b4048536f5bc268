"""A worker whose numbers broke down: what of its moments and residuals is not finite is forgotten."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch.optim import Optimizer

from trainingkit.core.logging import LOG
from trainingkit.sync.bucketplan import Carried


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


def forget_broken_residuals(carried: Iterable[Carried]) -> int:
    """Zero residuals that are not finite: no round with them would ever count. The log says how many.

    Returns:
        How many elements were forgotten.
    """
    forgotten = 0
    for residuals in (each.residuals for each in carried):
        for owed in (residuals.own, residuals.answer):
            if owed is not None and not all_finite([owed]):
                broken = ~owed.isfinite()
                forgotten += int(broken.sum())
                owed[broken] = 0.0
    if forgotten:
        LOG.warning("%d elements of this rank's residuals were not finite and are owed no more", forgotten)
    return forgotten

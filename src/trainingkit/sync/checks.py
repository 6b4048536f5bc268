"""What a step must have before it counts; each says what is wrong and what to do."""

from __future__ import annotations

import math

from trainingkit.core.errors import ConfigError, StepError


def check_weight(weight: float) -> None:
    """Raise ConfigError unless `weight` can be a rank's weight in the mean."""
    if 0.0 <= weight < math.inf:
        return
    raise ConfigError(
        "A rank's weight in the mean cannot be used.",
        field="weight",
        found=weight,
        expected="a finite number, not negative, for example this rank's tokens in the step",
        next_step="Set sync.weight to such a number before the step's backward; 1.0 on all ranks is the plain mean.",
    )


def check_exchanged(buckets_seen: bool) -> None:
    """Raise StepError when DDP showed no bucket in a step: ranks would drift apart silently (PyTorch issue 187732)."""
    if buckets_seen:
        return
    raise StepError(
        "No gradient was exchanged since the last step.",
        found="no bucket from DistributedDataParallel",
        expected="one backward outside of no_sync in each step",
        next_step="With static_graph=True the very first backward must not be under no_sync; or wrap the model with "
        "find_unused_parameters=True instead.",
    )

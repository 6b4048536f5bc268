"""What a compiled selection is: two driver templates, over rows of one width."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from trainingkit.core.registry import Registry
from trainingkit.kernels.rowplan import RowPlan

NOTHING = np.empty(0, np.float32)
"""Stands for a residual that is not given."""


@dataclass(frozen=True)
class Drivers:
    """Templates with the globals `FORMAT_SCRATCH`, `FORMAT_ENCODE`, `FORMAT_DECODE`, and what a plan hands to them.

    Args:
        encode: `(x, residual, message, new_residual, *numbers) -> finite`.
        decode: `(message, out, weight, accumulate, *numbers) -> sound`.
        numbers: the plan as plain integers.
    """

    encode: Callable[..., Any]
    decode: Callable[..., Any]
    numbers: Callable[[RowPlan], tuple[Any, ...]]


SELECTIONS: Registry[Drivers] = Registry("compiled selection", "trainingkit.kernels.compiled.selections")

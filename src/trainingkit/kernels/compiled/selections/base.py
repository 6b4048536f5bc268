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
    """Templates with the globals `FORMAT_ENCODE`, `FORMAT_DECODE` and, where indices are sent, `PACK` and `UNPACK`.

    Args:
        encode: `(x, residual, message, new_residual, memory, own, *numbers) -> finite`.
        decode: `(message, out, weight, accumulate, memory, own, *numbers) -> sound`.
        capacity: the most values that the format sees at a time.
        scratch: the selection's own memory, a tuple of arrays.
        numbers: the plan as plain integers.
    """

    encode: Callable[..., Any]
    decode: Callable[..., Any]
    capacity: Callable[[RowPlan], int]
    scratch: Callable[[RowPlan], tuple[Any, ...]]
    numbers: Callable[[RowPlan], tuple[Any, ...]]


SELECTIONS: Registry[Drivers] = Registry("compiled selection", "trainingkit.kernels.compiled.selections")

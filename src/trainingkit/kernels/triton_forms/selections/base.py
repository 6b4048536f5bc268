"""What a selection in Triton is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainingkit.core.registry import Registry
from trainingkit.kernels.rowplan import RowPlan

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Selection:
    """Two plain functions that launch a kernel, and whether they can.

    Args:
        fits: `(plan) -> whether one program can hold what it must`.
        encode: `(plan, x, residual, message, new_residual) -> flag`, [1] int32, not 0 where y is not finite.
        decode: `(plan, message, out, weight, accumulate) -> flag`, [1] int32, not 0 where the message is not sound.
    """

    fits: Callable[[RowPlan], bool]
    encode: Callable[[RowPlan, Tensor, Tensor | None, Tensor, Tensor | None], Tensor]
    decode: Callable[[RowPlan, Tensor, Tensor, float, bool], Tensor]


SELECTIONS: Registry[Selection] = Registry("Triton selection", "trainingkit.kernels.triton_forms.selections")

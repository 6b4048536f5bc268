"""The `torch` kernel: plain tensor code, slow and easy to read. It is the oracle of all others, and always there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainingkit.kernels.kernel import KERNELS
from trainingkit.kernels.rowplan import RowPlan

if TYPE_CHECKING:
    from torch import Tensor


@KERNELS.register("torch")
class TorchKernel:
    """The reference."""

    speed = 1

    @staticmethod
    def missing() -> str | None:
        """Nothing is missing: torch is required."""
        return None

    @staticmethod
    def devices() -> tuple[str, ...]:
        """See `Kernel.devices`."""
        return ("cpu",)

    @staticmethod
    def supports(plan: RowPlan) -> bool:
        """Whether the reference has the plan's selection, format and packing."""
        from trainingkit.kernels.reference.formats import FORMATS
        from trainingkit.kernels.reference.packings import PACKINGS
        from trainingkit.kernels.reference.selections import SELECTIONS

        known = plan.selection in SELECTIONS.names() and plan.format in FORMATS.names()
        return known and (not plan.packing or plan.packing in PACKINGS.names())

    @staticmethod
    def encode(plan: RowPlan, x: Tensor, residual: Tensor | None, message: Tensor, new_residual: Tensor | None) -> bool:
        """See `Kernel.encode`."""
        from trainingkit.kernels.reference.rows import encode

        return encode(plan, x, residual, message, new_residual)

    @staticmethod
    def decode(plan: RowPlan, message: Tensor, out: Tensor, weight: float, accumulate: bool) -> bool:
        """See `Kernel.decode`."""
        from trainingkit.kernels.reference.rows import decode

        return decode(plan, message, out, weight, accumulate)

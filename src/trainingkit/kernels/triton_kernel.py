"""The `triton` kernel: one fused pass each way on a CUDA device, the same bits as the reference.

Under Triton's interpreter (TRITON_INTERPRET=1 before Python starts) it takes CPU tensors, slowly: for tests, and never
for "auto".
"""

from __future__ import annotations

import importlib.util
import os
from typing import TYPE_CHECKING

from trainingkit.kernels.kernel import KERNELS
from trainingkit.kernels.rowplan import RowPlan

if TYPE_CHECKING:
    from torch import Tensor

TRUE = ("1", "true", "on", "yes", "y")


@KERNELS.register("triton")
class TritonKernel:
    """Compiled for the device on first use. It waits for the device, since it returns whether all went well."""

    speed = 0
    """Nothing else takes CUDA tensors, and whatever takes CPU tensors is faster than the interpreter."""

    @staticmethod
    def missing() -> str | None:
        """Why this kernel cannot run here, or None."""
        if importlib.util.find_spec("triton") is None:
            return "triton is not installed"
        if _interpreted():
            return None
        import torch

        return None if torch.cuda.is_available() else "there is no CUDA device"

    @staticmethod
    def devices() -> tuple[str, ...]:
        """See `Kernel.devices`."""
        return ("cpu",) if _interpreted() else ("cuda",)

    @staticmethod
    def supports(plan: RowPlan) -> bool:
        """Whether there are Triton forms of the plan's parts, and one program can hold what it must."""
        from trainingkit.kernels.triton_forms.formats import FORMATS
        from trainingkit.kernels.triton_forms.packings import PACKINGS
        from trainingkit.kernels.triton_forms.selections import SELECTIONS

        known = plan.selection in SELECTIONS.names() and plan.format in FORMATS.names()
        known = known and (not plan.packing or plan.packing in PACKINGS.names())
        return known and SELECTIONS.get(plan.selection).fits(plan)

    @staticmethod
    def encode(plan: RowPlan, x: Tensor, residual: Tensor | None, message: Tensor, new_residual: Tensor | None) -> bool:
        """See `Kernel.encode`."""
        import torch

        from trainingkit.kernels.triton_forms.selections import SELECTIONS

        with torch.cuda.device_of(x):
            return not SELECTIONS.get(plan.selection).encode(plan, x, residual, message, new_residual).item()

    @staticmethod
    def decode(plan: RowPlan, message: Tensor, out: Tensor, weight: float, accumulate: bool) -> bool:
        """See `Kernel.decode`."""
        import torch

        from trainingkit.kernels.triton_forms.selections import SELECTIONS

        with torch.cuda.device_of(out):
            return not SELECTIONS.get(plan.selection).decode(plan, message, out, weight, accumulate).item()


def _interpreted() -> bool:
    return os.environ.get("TRITON_INTERPRET", "").lower() in TRUE

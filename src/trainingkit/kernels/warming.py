"""Compile before it matters: one rank fills the disk cache, the others load it."""

from __future__ import annotations

from trainingkit.kernels.kernel import pick
from trainingkit.kernels.rowplan import RowPlan


def warm(name: str, plan: RowPlan, device: str | None = None) -> None:
    """Run the kernel that `pick` gives for `plan` once on zeros, so that it is compiled, and cached where it can be.

    Args:
        device: as `pick` takes it; None: the first that the kernel takes.

    Rank 0 calls this first and the others after a barrier, so that the compiler runs once per host.
    """
    import torch

    kernel = pick(name, plan, device)
    place = device or kernel.devices()[0]
    zeros = torch.zeros(plan.width, device=place)
    message = torch.zeros(plan.row_bytes, dtype=torch.uint8, device=place)
    kernel.encode(plan, zeros, zeros, message, torch.empty_like(zeros))
    kernel.decode(plan, message, zeros, 1.0, False)

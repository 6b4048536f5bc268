"""The reference encoder and decoder: rows through selection, format and packing, in a few tensor operations."""

from __future__ import annotations

import torch
from torch import Tensor

from trainingkit.kernels.reference.formats import FORMATS
from trainingkit.kernels.reference.packings import PACKINGS
from trainingkit.kernels.reference.selections import SELECTIONS
from trainingkit.kernels.rowplan import RowPlan


def encode(plan: RowPlan, x: Tensor, residual: Tensor | None, message: Tensor, new_residual: Tensor | None) -> bool:
    """See `trainingkit.kernels.kernel.Kernel.encode`."""
    y = (x if residual is None else x + residual).view(-1, plan.width)
    indices = SELECTIONS.get(plan.selection)(y, plan.keep)
    code, sent = FORMATS.get(plan.format).encode(y.gather(1, indices), plan)
    parts = [PACKINGS.get(plan.packing).pack(indices, plan), code] if plan.packing else [code]
    message.view(-1, plan.row_bytes).copy_(torch.cat(parts, dim=1))
    if new_residual is not None:
        error = y.gather(1, indices) - sent
        new_residual.view(-1, plan.width).copy_(y.scatter(1, indices, error))
    return bool(y.isfinite().all())


def decode(plan: RowPlan, message: Tensor, out: Tensor, weight: float, accumulate: bool) -> bool:
    """See `trainingkit.kernels.kernel.Kernel.decode`."""
    rows, dense = message.view(-1, plan.row_bytes), out.view(-1, plan.width)
    code = rows[:, plan.index_bytes :]
    values = FORMATS.get(plan.format).decode(code, plan) * torch.tensor(weight, dtype=torch.float32)
    if not plan.packing:
        dense.copy_(dense + values if accumulate else values)
        return True
    indices = PACKINGS.get(plan.packing).unpack(rows[:, : plan.index_bytes], plan.keep, plan)
    if not _sound(indices, plan.width):
        return False
    if not accumulate:
        dense.zero_()
    dense.scatter_(1, indices, dense.gather(1, indices) + values if accumulate else values)
    return True


def _sound(indices: Tensor, width: int) -> bool:
    ascending = bool((indices[:, 1:] > indices[:, :-1]).all())
    return ascending and bool((indices >= 0).all()) and bool((indices < width).all())

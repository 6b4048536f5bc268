"""What rounds still owe when they end: the mean of all ranks' residuals, brought into the agreed model once.

agreed = agreed - r mean over ranks of (own + N answer)     in bf16 on the wire; an answer's owner speaks for all

r is what the outer step makes of a difference at once: lr, or lr (1 + mu) with Nesterov; 1 where the mean is taken.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist

from trainingkit.sync.every.moments import average
from trainingkit.sync.every.parcel import Parcel
from trainingkit.sync.every.settings import Every
from trainingkit.sync.residualstate import export


def pay_rounds(
    parcels: Iterable[Parcel], every: Every, owner: int, group: dist.ProcessGroup, device: torch.device
) -> None:
    """Pay, and write the agreed model into the local one. What is paid is owed no more, so nobody pays twice.

    All ranks call it when they have settled.

    Args:
        owner: the shard whose mean this rank encodes again.
        device: on which the group's collectives run.

    Raises:
        RuntimeError: a peer is lost.
    """
    ranks = dist.get_world_size(group)
    rate = every.outer_lr * (1.0 + every.outer_momentum if every.nesterov else 1.0)
    for parcel in parcels:
        owed = _owed(parcel, ranks, owner)
        average([owed], group, device)
        parcel.agreed.sub_(owed, alpha=rate)
        parcel.forget_residuals()
        parcel.write(parcel.agreed)


def _owed(parcel: Parcel, ranks: int, owner: int) -> torch.Tensor:
    """[elements] fp32: what this rank's residuals say of the parcel."""
    state = export(parcel.carried, owner)
    owed = torch.zeros_like(parcel.agreed)
    for name, (_, view) in zip(parcel.named, parcel.views(owed), strict=True):
        flat = view.view(-1)
        flat.add_(state["own"][name])
        for start, values in state["answer"].get(name, ()):
            flat[start : start + values.numel()].add_(values, alpha=ranks)
    return owed

"""What rounds still owe when they end: the mean of all ranks' residuals, brought into the agreed model once.

agreed = agreed - mean over ranks of (own + N answer)      in bf16 on the wire; an answer's owner speaks for all
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from trainingkit.sync.every.apart import EverySync
from trainingkit.sync.every.moments import average
from trainingkit.sync.every.parcel import Parcel
from trainingkit.sync.residualstate import export


def pay_rounds(rounds: EverySync, group: dist.ProcessGroup, device: torch.device) -> None:
    """Pay, and write the agreed model into the local one. All ranks call it when they have settled.

    Args:
        device: on which the group's collectives run.

    Raises:
        RuntimeError: a peer is lost.
    """
    ranks = dist.get_world_size(group)
    parcels = [parcel for fragment in rounds.fragments for parcel in fragment.parcels]
    for parcel in parcels:
        owed = _owed(parcel, ranks, rounds.owner)
        average([owed], group, device)
        parcel.agreed.sub_(owed)
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

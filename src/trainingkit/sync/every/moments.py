"""One optimizer for all replicas again, after each rank has had its own.

    tensors of a parameter    their mean; where not all of them are floating, those of the first rank that has any
    counters, numbers         those of the first rank that has any
    settings of the groups    rank 0's

A rank that keeps nothing of a parameter, for it had no gradient there, counts with zeros and keeps the mean from then
on. Means travel in bf16, which keeps a value's range, in pieces of some MB: 2 bytes a value, twice that for Adam, whose
second moments fp16 or blocks of few bits would lose. All ranks get the bits that the all-reduce gave them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim import Optimizer

from trainingkit.core.logging import LOG
from trainingkit.sync.every.kept import Source, joint, parameters_of, tell

PIECE_ELEMENTS = 1 << 22


def agree_on_moments(optimizer: Optimizer, group: dist.ProcessGroup, device: torch.device) -> None:
    """Make every rank's optimizer the same. All ranks call it; what travels follows from what all of them have told.

    Args:
        device: on which the group's collectives run.

    Raises:
        StepError: on all ranks alike, where optimizers are over other parameters, or keep what cannot be agreed on.
        RuntimeError: a peer is lost.
    """
    told = tell(optimizer, group)
    entries = joint(told)
    _take_settings(optimizer, told[0].groups)
    means: list[Tensor] = []
    for parameter, kept in zip(parameters_of(optimizer), entries, strict=True):
        if not kept:
            continue
        state = optimizer.state[parameter]
        _fill(state, kept, parameter.device)
        tensors = {name: source for name, source in kept.items() if source.kept.shape}
        if all(state[name].is_floating_point() for name in tensors):
            means += [state[name] for name in tensors]
            continue
        for name, source in tensors.items():
            _copy_from(source.rank, state[name], group, device)
    average(means, group, device)


def average(tensors: Sequence[Tensor], group: dist.ProcessGroup, device: torch.device) -> None:
    """Replace each by its mean over the ranks, rounded to bf16.

    Args:
        tensors: on any devices.
        device: on which the group's collectives run.
    """
    ranks = dist.get_world_size(group)
    for pieces in _pieces(tensors):
        wire = torch.cat([(piece.reshape(-1).float() / ranks).to(device, torch.bfloat16) for piece in pieces])
        dist.all_reduce(wire, group=group)
        for piece, mean in zip(pieces, wire.split([piece.numel() for piece in pieces]), strict=True):
            piece.copy_(mean.view(piece.shape))


def _fill(state: dict[str, Any], kept: Mapping[str, Source], device: torch.device) -> None:
    """Zeros where this rank lacks a tensor, and all numbers as their source has them."""
    for name, (_, entry) in kept.items():
        if entry.dtype is not None and state.get(name) is None:
            place = torch.device("cpu") if entry.on_cpu else device
            state[name] = torch.zeros(entry.shape, dtype=entry.dtype, device=place)
        if entry.value is not None and entry.dtype is not None:
            state[name].fill_(entry.value)
        elif entry.value is not None:
            state[name] = entry.value


def _copy_from(rank: int, tensor: Tensor, group: dist.ProcessGroup, device: torch.device) -> None:
    sent = tensor.detach().to(device).contiguous()
    dist.broadcast(sent, group=group, group_src=rank)
    tensor.detach().copy_(sent)


def _take_settings(optimizer: Optimizer, groups: Sequence[Mapping[str, Any]]) -> None:
    """Learning rates and the like: replicas that step by different ones would not stay replicas."""
    for index, (mine, theirs) in enumerate(zip(optimizer.param_groups, groups, strict=True)):
        for name, value in theirs.items():
            own = mine.get(name)
            if isinstance(own, Tensor) and float(own) != value:
                own.fill_(value)
            elif not isinstance(own, Tensor) and own != value:
                mine[name] = value
            else:
                continue
            LOG.warning("group %d of the optimizer goes on with rank 0's %s, %s", index, name, value)


def _pieces(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Some at a time, together at most `PIECE_ELEMENTS` at a time unless one alone is more."""
    pieces: list[Tensor] = []
    filled = 0
    for tensor in tensors:
        if pieces and filled + tensor.numel() > PIECE_ELEMENTS:
            yield pieces
            pieces, filled = [], 0
        pieces.append(tensor.detach())
        filled += tensor.numel()
    if pieces:
        yield pieces

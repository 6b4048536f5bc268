"""One optimizer for all replicas again, after each rank has had its own: the mean of its tensors, rank 0's of the rest.

Means travel in bf16, which keeps a value's range, in pieces of some MB: 2 bytes a value, twice that for Adam, whose
second moments fp16 or blocks of few bits would lose. All ranks get the bits that the all-reduce gave them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim import Optimizer

PIECE_ELEMENTS = 1 << 22


def agree_on_moments(optimizer: Optimizer, group: dist.ProcessGroup) -> None:
    """Make every rank's state the same. All ranks call it, with states of the same names.

    Raises:
        RuntimeError: a peer is lost.
    """
    entries = list(_entries(optimizer))
    average([t for t in entries if t.dim() and t.is_floating_point()], group)
    for tensor in entries:
        if tensor.dim() and not tensor.is_floating_point():
            dist.broadcast(tensor, group=group, group_src=0)
    counters = [tensor for tensor in entries if not tensor.dim()]
    told = torch.tensor([float(counter) for counter in counters], dtype=torch.float64)
    if len(told):
        dist.broadcast(told, group=group, group_src=0)
    for counter, value in zip(counters, told.tolist(), strict=True):
        counter.fill_(value)


def average(tensors: Sequence[Tensor], group: dist.ProcessGroup) -> None:
    """Replace each by its mean over the ranks, rounded to bf16."""
    ranks = dist.get_world_size(group)
    for pieces in _pieces(tensors):
        wire = torch.cat([piece.reshape(-1).float() / ranks for piece in pieces]).to(torch.bfloat16)
        dist.all_reduce(wire, group=group)
        for piece, mean in zip(pieces, wire.split([piece.numel() for piece in pieces]), strict=True):
            piece.copy_(mean.view(piece.shape))


def _entries(optimizer: Optimizer) -> Iterator[Tensor]:
    """All tensors of the state, in an order that the ranks share."""
    for parameters in optimizer.param_groups:
        for parameter in parameters["params"]:
            state = optimizer.state.get(parameter, {})
            yield from (state[name] for name in sorted(state) if isinstance(state[name], Tensor))


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

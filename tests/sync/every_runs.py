"""Loops of workers that train apart: what each does between rounds, and what came out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from squeezed_models import batch, loss_of, net
from torch import nn

from ranks import Context
from trainingkit.sync.every.apart import EverySync
from trainingkit.sync.every.door import train_apart

LR = 0.05


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=LR)


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=0.01)


@contextmanager
def apart(context: Context, model: nn.Module, optimizer: Any, text: str, **options: Any) -> Iterator[EverySync]:
    """A synchroniser with several small parcels, whose threads end with the block."""
    options = {"islands": "off", "parcel_mb": 0.05, **options}
    sync: Any = train_apart(model, optimizer, text, group=context.group, **options)
    try:
        yield sync
    finally:
        sync.close()


def local_step(model: nn.Module, optimizer: torch.optim.Optimizer, step: int, rank: int) -> None:
    """Forward, backward and update on this rank's batch of the step."""
    optimizer.zero_grad()
    loss_of(model, batch(step, rank)).backward()
    optimizer.step()


def walk(
    sync: EverySync,
    optimizer: torch.optim.Optimizer,
    context: Context,
    steps: range,
    *,
    after: Callable[[int], None] = lambda step: None,
) -> None:
    """Steps with commits."""
    for step in steps:
        local_step(sync.module, optimizer, step, context.rank)
        sync.commit()
        after(step)


def parameters(model: nn.Module) -> list[torch.Tensor]:
    """Copies."""
    return [p.detach().clone() for p in model.parameters()]


def agreed(sync: EverySync) -> dict[str, torch.Tensor]:
    """Copies of the agreed model by name, flat."""
    return sync.state_dict()["agreed"]["parameters"]


def fresh(seed: int = 1) -> nn.Module:
    """The small model of the other tests."""
    return net(seed)

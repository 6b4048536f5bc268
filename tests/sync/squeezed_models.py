"""Small models and loops for the tests of the squeezed door: what is trained, how, and what came out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ranks import Context
from trainingkit.sync.contract import Sync
from trainingkit.sync.doors import squeeze

INT4 = "all|int4(block=64)"
TOPK = "topk(density=0.05, chunk=4096)|int4"
SMALL_MB = 0.05
FEATURES = 48


def net(seed: int = 1) -> nn.Module:
    """Four matrices that are squeezed, norms, biases and a head that are not."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(FEATURES, 96),
        nn.LayerNorm(96),
        nn.Tanh(),
        nn.Linear(96, 96),
        nn.Tanh(),
        nn.Linear(96, 101, bias=False),
        nn.Tanh(),
        nn.Linear(101, 64),
        nn.Tanh(),
        nn.Linear(64, 5),
    )


def wrapped(model: nn.Module, **options: Any) -> DistributedDataParallel:
    """DDP with several buckets, which keep their layout."""
    return DistributedDataParallel(model, **{"bucket_cap_mb": SMALL_MB, "find_unused_parameters": True, **options})


@contextmanager
def squeezed(ddp: nn.Module, codec: str = INT4, **options: Any) -> Iterator[Any]:
    """A synchroniser whose threads end with the block."""
    sync: Sync = squeeze(ddp, codec, **options)
    try:
        yield sync
    finally:
        sync.close()


def batch(step: int, rank: int, size: int = 4) -> torch.Tensor:
    """Another batch for each step and rank; the same every time."""
    generator = torch.Generator().manual_seed(1000 * rank + step)
    return torch.randn(size, FEATURES, generator=generator)


def loss_of(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """A loss with gradients everywhere."""
    return (model(x) - x[:, :5]).square().mean()


def digest(tensors: Any) -> str:
    """A hash of the bits of tensors (in order), or of a dict's in sorted order."""
    if isinstance(tensors, dict):
        tensors = [tensors[key] for key in sorted(tensors)]
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(tensor.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:16]


def gradients(model: nn.Module) -> list[torch.Tensor]:
    """All gradients that there are."""
    return [p.grad for p in model.parameters() if p.grad is not None]


def train(
    model: nn.Module,
    context: Context,
    steps: range,
    *,
    lr: float = 0.1,
    before: Callable[[int], None] = lambda step: None,
) -> list[str]:
    """SGD with momentum-free updates, so that parameters are the only state; digests of the gradients by step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    seen = []
    for step in steps:
        before(step)
        optimizer.zero_grad()
        loss_of(model, batch(step, context.rank)).backward()
        optimizer.step()
        seen.append(digest(gradients(model)))
    return seen

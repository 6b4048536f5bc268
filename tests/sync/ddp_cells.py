"""The matrix of what DDP can be told and what models can be: one cell each, for plain and for squeezed DDP alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from squeezed_models import FEATURES, batch, loss_of, net
from torch import nn
from torch.utils.checkpoint import checkpoint

Loss = Callable[[nn.Module, int, int], torch.Tensor]


def plain_loss(ddp: nn.Module, step: int, rank: int) -> torch.Tensor:
    """The mean square of `squeezed_models`."""
    return loss_of(ddp, batch(step, rank).to(next(ddp.parameters()).dtype))


@dataclass(frozen=True)
class Cell:
    """One combination.

    Args:
        model: builds it, the same on every rank.
        options: of DistributedDataParallel.
        loss: by (ddp, step, rank).
        micro_batches: backwards per step.
        clip: whether gradients are clipped to a norm far below theirs.
        dense_steps: steps that must look exactly like plain DDP's traffic.
        squeezes: whether anything is large enough to be squeezed.
        rtol: how far the fp32 exchange may be from plain DDP, relative to the largest gradient.
    """

    model: Callable[[], nn.Module] = net
    options: dict[str, Any] = field(default_factory=lambda: {"find_unused_parameters": True})
    loss: Loss = plain_loss
    micro_batches: int = 1
    clip: bool = False
    dense_steps: int = 0
    squeezes: bool = True
    rtol: float = 1e-6


class Branches(nn.Module):
    """Which branch is used depends on step and rank; one is never used."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.branches = nn.ModuleList([nn.Linear(FEATURES, 96) for _ in range(4)])
        self.out = nn.Linear(96, 5)

    def forward(self, x: torch.Tensor, branch: int) -> torch.Tensor:
        return self.out(torch.tanh(self.branches[branch](x)))


def branch_loss(ddp: nn.Module, step: int, rank: int) -> torch.Tensor:
    return ddp(batch(step, rank), (step + rank) % 3).square().mean()


class Checkpointed(nn.Module):
    """The body is computed again in backward."""

    def __init__(self) -> None:
        super().__init__()
        self.body = net()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.body, x, use_reentrant=False)  # type: ignore[return-value]


class Pictures(nn.Module):
    """Convolutions in channels_last: gradients are strided otherwise than the parameters' shapes suggest."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.body = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 1))
        self.wide = nn.Conv2d(64, 80, 1)
        self.out = nn.Linear(80, 3)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.wide(self.body(x)).mean(dim=(2, 3)))


def picture_loss(ddp: nn.Module, step: int, rank: int) -> torch.Tensor:
    x = batch(step, rank, size=4)[:, :48].reshape(1, 3, 8, 8).to(memory_format=torch.channels_last)
    return ddp(x).square().mean()


def frozen_and_tied() -> nn.Module:
    """The first matrix does not train; two layers share one; the embedding is the head."""
    model = net()
    model[0].weight.requires_grad_(False)  # type: ignore[union-attr]
    return Tied(model)


class Tied(nn.Module):
    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body
        self.words = nn.Embedding(5, 5)
        self.head = nn.Linear(5, 5, bias=False)
        self.head.weight = self.words.weight
        self.again = nn.Linear(96, 96)
        self.again.weight = body[3].weight  # type: ignore[index]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        middle = torch.tanh(self.again(self.body[:4](x)))  # type: ignore[index]
        return self.head(self.body[4:](middle) + self.words(torch.zeros(len(x), dtype=torch.long)))  # type: ignore[index]


def in_bf16() -> nn.Module:
    return net().to(torch.bfloat16)


class Mixed(nn.Module):
    """Two dtypes, so two kinds of buckets."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = net()
        torch.manual_seed(2)
        self.narrow = nn.Sequential(nn.Linear(FEATURES, 128), nn.Tanh(), nn.Linear(128, 5)).to(torch.bfloat16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.wide(x) + self.narrow(x.bfloat16()).float()


def small() -> nn.Module:
    """Nothing is worth squeezing."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(FEATURES, 16), nn.Tanh(), nn.Linear(16, 5))


class WithNothing(nn.Module):
    """A parameter of zero elements between others."""

    def __init__(self) -> None:
        super().__init__()
        self.body = net()
        self.nothing = nn.Parameter(torch.zeros(0, 7))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x) + self.nothing.sum()


KEEPS = {"find_unused_parameters": True}
CELLS = {
    "plain": Cell(),
    "rebuilt buckets": Cell(options={}, dense_steps=2),
    "rebuilt buckets, views": Cell(options={"gradient_as_bucket_view": True}, dense_steps=2),
    "static graph": Cell(options={"static_graph": True}, dense_steps=2),
    "accumulation": Cell(micro_batches=3),
    "accumulation, rebuilt": Cell(micro_batches=2, options={}, dense_steps=2),
    "bucket views": Cell(options={**KEEPS, "gradient_as_bucket_view": True}, micro_batches=2),
    "one bucket": Cell(options={**KEEPS, "bucket_cap_mb": 25}),
    "a bucket per parameter": Cell(options={**KEEPS, "bucket_cap_mb": 1e-5}),
    "unused parameters": Cell(model=Branches, loss=branch_loss),
    "clipping": Cell(clip=True, rtol=1e-3),
    "checkpointing": Cell(model=Checkpointed),
    "checkpointing, static graph": Cell(model=Checkpointed, options={"static_graph": True}, dense_steps=2),
    "channels_last": Cell(model=Pictures, loss=picture_loss),
    "frozen and tied": Cell(model=frozen_and_tied),
    "bf16": Cell(model=in_bf16, rtol=2.0**-7),
    "mixed dtypes": Cell(model=Mixed, rtol=2.0**-7),
    "all exempt": Cell(model=small, squeezes=False),
    "zero elements": Cell(model=WithNothing),
}

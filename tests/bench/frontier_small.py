"""A task that runs in a blink, for tests of the frontier bench: a small network learns fixed random numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from trainingkit.bench.frontier.task import Metric, Task
from trainingkit.data.batch import Batch

WIDTH = 64
SEEN = 8


class SmallTask(Task):
    """Settings of the small task."""

    title: ClassVar[str] = "a small task"
    metric: ClassVar[Metric] = "loss"

    steps: int = 6
    batch_size: int = 4
    lr: float = 3e-3
    muon_lr: float = 1e-2
    warmup_steps: int = 2
    weight_decay: float = 0.1
    poison_at: int | None = Field(default=None, description="number of a batch that is not finite")

    def open(self, cache: Path) -> SmallJob:
        return SmallJob(self)


class SmallJob:
    """Inputs are drawn from the batch's number; targets are a fixed function of them."""

    facts: ClassVar[dict[str, Any]] = {"name": "random numbers"}

    def __init__(self, task: SmallTask) -> None:
        self._task = task

    def build(self, seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(SEEN, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))

    def batch(self, number: int, seed: int) -> Batch:
        draw = torch.Generator().manual_seed(1000 * seed + number)
        inputs = torch.randn(self._task.batch_size, SEEN, generator=draw)
        if number == self._task.poison_at:
            inputs = inputs * torch.nan
        return {"inputs": inputs, "labels": inputs.square().sum(dim=1, keepdim=True)}

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        return F.mse_loss(model(batch["inputs"]), batch["labels"])

    @torch.no_grad()
    def evaluate(self, model: nn.Module) -> float:
        return float(self.loss(model, self.batch(10**6, 0)))

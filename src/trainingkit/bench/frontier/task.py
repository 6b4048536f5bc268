"""What a task of the frontier bench offers: a model, numbered batches, a loss, a final figure; and the registry.

A task's fields are its settings; together they are part of the key under which a run is kept.
"""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

from pydantic import Field
from torch import Tensor, nn

from trainingkit.core.registry import Registry
from trainingkit.core.section import Section
from trainingkit.data.batch import Batch

Metric = Literal["loss", "accuracy"]


class Job(Protocol):
    """A task with its data at hand. All are functions of their arguments: two jobs of one task agree bit for bit."""

    facts: dict[str, Any]

    def build(self, seed: int) -> nn.Module:
        """A fresh model, without buffers that training changes and without dropout."""
        ...

    def batch(self, number: int, seed: int) -> Batch:
        """Batch `number` of the run's endless order; no two numbers share a sample until an epoch is over."""
        ...

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """[] fp32 - mean loss of a batch."""
        ...

    def evaluate(self, model: nn.Module) -> float:
        """The final figure on held-out data, the same samples for every seed."""
        ...


class Task(Section):
    """Settings of a task."""

    title: ClassVar[str]
    metric: ClassVar[Metric]

    steps: int = Field(ge=1, description="steps of a run")
    batch_size: int = Field(ge=1, description="samples of one worker in one step")
    lr: float = Field(gt=0, description="peak learning rate of AdamW")
    muon_lr: float = Field(gt=0, description="peak learning rate of Muon's matrices")
    warmup_steps: int = Field(ge=0, description="steps of linear warm-up, before the cosine down to nothing")
    weight_decay: float = Field(ge=0, description="decay of matrices")
    beta2: float = Field(default=0.99, ge=0, lt=1, description="decay of AdamW's squared gradients")
    clip_norm: float = Field(default=1.0, gt=0, description="largest norm of a gradient")

    @abstractmethod
    def open(self, cache: Path) -> Job:
        """The task with its data, which are fetched into `cache` when this machine lacks them.

        Raises:
            DataError: the data are not here and cannot be fetched.
        """


TASKS: Registry[Any] = Registry("frontier task", "trainingkit.bench.frontier.tasks")

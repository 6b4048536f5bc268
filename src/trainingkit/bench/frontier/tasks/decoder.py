"""A byte decoder on the source of Python's standard library: loss on held-out files.

Llama-shaped with 0.84 M parameters. Embedding and head are one, or they, which travel in bf16, would be 7 % of so
small a model and most of its bits; in a large model they are hardly any.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from trainingkit.bench.frontier.task import TASKS, Metric, Task
from trainingkit.core.section import choose
from trainingkit.data import SOURCES
from trainingkit.data.batch import Batch, gather
from trainingkit.data.contract import Corpus
from trainingkit.data.order import SampleOrder
from trainingkit.models import MODELS

EVAL_BATCH = 64


@TASKS.register("decoder")
class DecoderTask(Task):
    """Settings of the decoder."""

    title: ClassVar[str] = "byte decoder on text"
    metric: ClassVar[Metric] = "loss"

    steps: int = Field(default=400, ge=1, description="steps of a run")
    batch_size: int = Field(default=2, ge=1, description="windows of one worker in one step")
    lr: float = Field(default=1e-3, gt=0, description="peak learning rate of AdamW")
    muon_lr: float = Field(default=2e-2, gt=0, description="peak learning rate of Muon's matrices")
    warmup_steps: int = Field(default=20, ge=0, description="steps of linear warm-up")
    weight_decay: float = Field(default=0.1, ge=0, description="decay of matrices")
    seq_len: int = Field(default=80, ge=2, description="bytes in a window")
    layers: int = Field(default=4, ge=1, description="blocks")
    hidden: int = Field(default=128, ge=8, description="width")
    feed_forward: int = Field(default=352, ge=8, description="width of the feed-forward part")
    eval_windows: int = Field(default=640, ge=1, description="held-out windows")

    def open(self, cache: Path) -> DecoderJob:
        """The text, which every Python has; nothing is fetched."""
        corpus: Corpus = choose(SOURCES, {"kind": "stdlib", "seq_len": self.seq_len}, field="data").open()
        return DecoderJob(self, corpus)


class DecoderJob:
    """The decoder with its text."""

    def __init__(self, task: DecoderTask, corpus: Corpus) -> None:
        self._task = task
        self._corpus = corpus
        held = SampleOrder(len(corpus.validation), seed=0).indices(0, task.eval_windows)
        self._held = np.array_split(held, -(-len(held) // EVAL_BATCH))
        self.facts: dict[str, Any] = corpus.info.summary()

    def build(self, seed: int) -> nn.Module:
        """The decoder, initialised from the seed."""
        torch.manual_seed(seed)
        task = self._task
        shape = {"layers": task.layers, "hidden": task.hidden, "feed_forward": task.feed_forward}
        return choose(MODELS, {"kind": "llama", "tie_embeddings": True, **shape}, field="model").build(
            self._corpus.info
        )

    def batch(self, number: int, seed: int) -> Batch:
        """`input_ids` and `labels`: [batch_size, seq_len] int64."""
        size = self._task.batch_size
        return gather(self._corpus.train, SampleOrder(len(self._corpus.train), seed).indices(number * size, size))

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Nats a byte."""
        return model(**batch).loss

    @torch.no_grad()
    def evaluate(self, model: nn.Module) -> float:
        """Nats a byte over the held-out windows."""
        sums = [float(self.loss(model, gather(self._corpus.validation, rows))) * len(rows) for rows in self._held]
        return sum(sums) / sum(len(rows) for rows in self._held)

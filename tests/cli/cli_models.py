"""A model for command-line runs whose forward carries out the faults of `RANKS_FAULTS`: (rank, step) as planned."""

from __future__ import annotations

import os
import threading
from typing import Any

import torch
from torch import nn

from ranks.faults import from_environment, trigger

_PAUSE = threading.Event()


class Faulty(nn.Module):
    """A bigram model on bytes, with dropout; each training forward counts as a step.

    Args:
        pause_s: how long each step takes at least, so that a test can act between two.
        first_step: number of the first step of this process; read from `FIRST_STEP` by `faulty`.
    """

    def __init__(self, pause_s: float, first_step: int) -> None:
        super().__init__()
        self.table = nn.Embedding(256, 256)
        self.drop = nn.Dropout(0.1)
        self.pause_s = pause_s
        self.step = first_step - 1
        self.rank = int(os.environ.get("RANK", "0"))

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> dict[str, Any]:
        if self.training:
            self.step += 1
            trigger(from_environment(), self.rank, self.step)
            if self.pause_s:
                _PAUSE.wait(self.pause_s)
        logits = self.drop(self.table(input_ids[:, :-1]))
        return {"loss": nn.functional.cross_entropy(logits.transpose(1, 2), labels[:, 1:])}


def faulty(pause_s: float = 0.0) -> nn.Module:
    """For `[model] kind = "python"`."""
    return Faulty(pause_s, int(os.environ.get("FIRST_STEP", "1")))

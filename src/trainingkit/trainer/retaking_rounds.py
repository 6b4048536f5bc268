"""One step of a journal of ranks that train apart: its rounds are decoded and applied to the agreed model."""

from __future__ import annotations

import warnings

import torch

from trainingkit.core.errors import CheckpointError
from trainingkit.recovery.journal import Step, row_name
from trainingkit.sync.every.apart import EverySync
from trainingkit.sync.every.landed import Landed
from trainingkit.trainer.retaking import Loop
from trainingkit.trainer.session import Session


def take_rounds(loop: Loop, step: Step, session: Session) -> None:
    """The rounds that the step applied, and the schedule. The local model and its optimizer stay.

    Raises:
        CheckpointError: what comes out is not the model that was agreed on.
    """
    sync = loop.sync
    assert isinstance(sync, EverySync)
    fragments = step.shared["buckets"]
    start = 0
    while start < len(fragments):
        count = len(sync.fragments[fragments[start]].parcels)
        rows = tuple(_rows(step, index, session.world_size) for index in range(start, start + count))
        sync.apply_again(Landed(fragments[start], rows))
        start += count
    if loop.rate is not None:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=r"Detected call of `lr_scheduler\.step\(\)` before")
            loop.rate.step()
    found = sync.agreed_crc32()
    if step.ends and found != step.numbers["agreed"]:
        raise CheckpointError(
            f"The rounds of step {step.step} do not lead to the model that was agreed on.",
            field="journal",
            found=f"{found:08x}, the checksum of a sample",
            expected=f"{step.numbers['agreed']:08x}",
            next_step="Resume with the recipe that wrote it, or go back to an earlier step: "
            "trainingkit recover RUN --inspect",
        )


def _rows(step: Step, index: int, ranks: int) -> torch.Tensor:
    messages = [step.blob(row_name(index, row)) or b"" for row in range(ranks)]
    return torch.frombuffer(bytearray(b"".join(messages)), dtype=torch.uint8).view(ranks, -1)

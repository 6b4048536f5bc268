"""The sections of a recipe that belong to the loop itself. Other sections live in the room that reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from trainingkit.core.errors import ConfigError
from trainingkit.core.section import Section
from trainingkit.core.units import parse_seconds


class RunSection(Section):
    """Where and how long."""

    folder: Path | None = Field(default=None, strict=False, description="run folder; default: a new one below runs/")
    steps: int | None = Field(default=None, ge=1, description="optimizer steps; default (own loops): one data pass")
    seed: int = Field(default=0, ge=0, lt=2**63, description="seed of everything random")
    threads: int = Field(default=0, ge=0, description="CPU threads per worker; 0: the host's cores shared out")
    device: Literal["auto", "cpu", "cuda"] = Field(default="auto", description="'auto' takes CUDA where it is")
    log_every: int = Field(default=10, ge=1, description="plain progress line each so many steps, without a terminal")
    grace_s: float = Field(default=60.0, gt=0, description="seconds to finish a step and save after SIGTERM")
    restarts: int = Field(default=0, ge=0, description="how often to start the workers again after one has died")
    min_workers: int | None = Field(
        default=None, ge=1, description="go on with so few workers after deaths; default: all are started again"
    )


class StepSection(Section):
    """What one optimizer step is."""

    accumulate: int = Field(default=1, ge=1, description="micro-batches per step")
    clip_norm: float = Field(default=1.0, ge=0, description="clip the gradient's norm to this; 0: never")
    max_aborts: int = Field(default=20, ge=1, description="give up after so many aborted steps in a row")


class BatchSection(Section):
    """How samples are grouped and fetched."""

    size: int = Field(default=8, ge=1, description="samples per worker and micro-batch")
    threads: int = Field(default=1, ge=1, description="background threads that read samples")
    depth: int = Field(default=4, ge=1, description="batches read ahead")


class EvalSection(Section):
    """When and on what to evaluate."""

    every: int = Field(default=40, ge=0, description="steps between evaluations; 0: only at the end")
    samples: int = Field(default=256, ge=0, description="validation samples, evenly spread; 0: all")
    patience: int = Field(default=0, ge=0, description="stop after so many evaluations without a better loss; 0: never")


class SnapshotSection(Section):
    """When to save and what to keep."""

    every: int | str = Field(
        default=50,
        description="steps between snapshots, a time such as '30s', or 'auto': what loses least; 0: only at the end "
        "and on a signal",
    )
    keep: int = Field(default=2, ge=1, description="newest snapshots that stay")
    memory_every: int = Field(
        default=0, ge=0, description="steps between snapshots in the RAM of each host and its neighbour; 0: none"
    )
    mtbf: str = Field(
        default="24h", description="with 'auto': the mean time between two failures; what the run has seen joins it"
    )

    @field_validator("every")
    @classmethod
    def _every_can_be_read(cls, every: int | str) -> int | str:
        if every == "auto" or (isinstance(every, int) and every >= 0):
            return every
        if isinstance(every, int) or _seconds(every, "snapshot.every") <= 0.0:
            raise ValueError("a number of steps from 0 on, a time above 0 such as '30s', or 'auto'")
        return every

    @field_validator("mtbf")
    @classmethod
    def _mtbf_can_be_read(cls, mtbf: str) -> str:
        if _seconds(mtbf, "snapshot.mtbf") <= 0.0:
            raise ValueError("a time above 0, such as '24h'")
        return mtbf


class JournalSection(Section):
    """What is kept of each step between two snapshots, so that the last completed step survives."""

    steps: Literal["off", "squeezed"] = Field(
        default="off",
        description="'squeezed': write down every step whose gradients travel squeezed, and every round; 'off': none",
    )
    fsync_s: float = Field(default=5.0, ge=0, description="a host that dies loses at most the steps of so many seconds")
    queue_mb: float = Field(default=64.0, gt=0, description="what may wait to be written, in MB, before steps wait")


def _seconds(text: str, field: str) -> float:
    try:
        return parse_seconds(text, field=field)
    except ConfigError as error:
        raise ValueError(str(error)) from error

"""One loss curve: what makes it, and the file that keeps it. A curve does not depend on time or on the wire.

The file's name is a digest of the settings and of torch's version, so a curve that is there is never run again. A run
that is interrupted leaves nothing. Whoever changes what a curve computes raises `VERSION`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from pydantic import Field

from trainingkit.bench.cache import cache_folder, read_kept
from trainingkit.bench.naming import Compute, read_name
from trainingkit.bench.network.spec import NetworkSpec
from trainingkit.core.section import Section, check, choose
from trainingkit.optim import SCHEDULES

VERSION = 1
WARMUP_SHARE = 0.1
STOPPED_S = 3600.0
"""Deadline of a collective: a run on a machine that does other things may stand still for long."""
FIRST_COMPUTE: Compute = "bf16"
"""What the first curves were computed in, when this was no part of their digest; it still is none of theirs."""
RATE_OF = {"adamw": "lr", "muon": "muon_lr"}
"""Which setting of an optimizer the sweep varies."""


class CurveSpec(Section):
    """Settings of one run of one contender."""

    name: str = Field(min_length=1, description="of the contender, as `bench.naming` reads it")
    rate: float = Field(gt=0, description="peak rate of the optimizer")
    steps: int = Field(ge=1, description="length, at whose end the rate has decayed")
    schedule: str = Field(default="cosine", description="of the rate, after a warm-up over a tenth of the steps")
    seed: int = Field(default=0, ge=0, description="of weights and data order")
    hosts: int = Field(default=4, ge=1, description="ranks")
    scale: str = Field(default="full", description="of the model, as in the network bench")
    eval_every: int = Field(default=10, ge=1, description="steps between two validation losses")
    proof_steps: int = Field(default=20, ge=1, description="after so many steps the parameters' bits are noted")
    compute: Compute = Field(default=FIRST_COMPUTE, description="type of the arithmetic, where the name gives none")

    def network(self) -> NetworkSpec:
        """The settings in the network bench's terms."""
        values = {"hosts": self.hosts, "scale": self.scale, "seed": self.seed}
        return check(NetworkSpec, {**values, "eval_every": self.eval_every, "timeout_s": STOPPED_S})

    def rates(self) -> dict[str, float]:
        """The swept setting of this contender's optimizer."""
        return {RATE_OF[read_name(self.name).optimizer["kind"]]: self.rate}

    def factor(self) -> Callable[[int], float]:
        """Share of the peak rate by the step."""
        warmup = round(WARMUP_SHARE * self.steps)
        schedule = choose(SCHEDULES, {"kind": self.schedule, "warmup_steps": warmup}, field="schedule")
        return lambda step: schedule.factor(step, self.steps)

    def digest(self) -> str:
        """Of everything that decides the curve."""
        settings: dict[str, Any] = {**self.model_dump(), "version": VERSION, "torch": torch.__version__}
        if self.compute == FIRST_COMPUTE:
            del settings["compute"]
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


class Curve(Section):
    """What one run showed."""

    spec: CurveSpec
    losses: list[list[float]] = Field(
        min_length=1, description="[steps taken, validation loss of the agreed model], rising"
    )
    proof: str = Field(description="SHA-256 of all ranks' parameters after `proof_steps`, or at the end")
    end: str = Field(description="the same at the end")
    sent_bytes: float = Field(description="what rank 0 says it sent a step, mean")
    seconds: float = Field(description="of the steps, on a machine that may do other things besides")
    eval_seconds: float = Field(default=0.0, description="of the validation losses, on top")
    torch: str = Field(description="version")

    @property
    def last_loss(self) -> float:
        """At the end."""
        return self.losses[-1][1]

    def reaches(self, target: float) -> bool:
        """Whether one of its evaluations is at or below the target."""
        return any(loss <= target for _, loss in self.losses)


Find = Callable[[CurveSpec], Curve | None]
"""The kept curve of these settings, or None."""


def default_cache() -> Path:
    """The user's cache folder for curves and times."""
    return cache_folder("time-to-loss")


def path_of(cache: Path, spec: CurveSpec) -> Path:
    """Where the curve is kept."""
    return cache / "curves" / f"{spec.digest()[:20]}.json"


def read_curve(cache: Path, spec: CurveSpec) -> Curve | None:
    """The curve, or None where there is none that can be read; a damaged file is as good as none."""
    return read_kept(path_of(cache, spec), Curve)

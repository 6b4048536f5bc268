"""What the bench runs: ranks, scale, lengths, rates, seeds; and which curve belongs to a contender."""

from __future__ import annotations

import math

import torch
from pydantic import Field

from trainingkit.bench.naming import Compute, read_name
from trainingkit.bench.timetoloss.catalogue import BASELINE, WINNER
from trainingkit.bench.timetoloss.curve import CurveSpec
from trainingkit.cluster.machine import cpu_name, has_fast_bf16
from trainingkit.core.errors import ConfigError
from trainingkit.core.section import Section, check
from trainingkit.precision.compute import choose_compute
from trainingkit.precision.section import PrecisionSection
from trainingkit.sync.every import parse_every, trains_apart

RATES = {"adamw": (1.5e-3, 3e-3, 7.5e-4), "muon": (8e-2, 1.6e-1, 4e-2)}
"""Of the sweep: what was best at full scale first, and its half and double; it goes on while an end is the best."""
SHORTER = (0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.8)
"""Lengths, as shares of the baseline's, that a contender with another optimizer may need."""
GRAIN = 4
"""Lengths are multiples of this."""
EVALUATIONS_FROM = 120
"""Runs of so many steps have a validation loss every ten steps, shorter ones every five."""


def compute_here() -> Compute:
    """What this machine computes in by itself."""
    found, _ = choose_compute(PrecisionSection(), torch.device("cpu"), cpu_has_bf16=has_fast_bf16())
    return "bf16" if found == "bf16" else "fp32"


class TimeToLossSpec(Section):
    """One run of the bench. Curves belong to the type of the arithmetic, times to the processor, too."""

    hosts: int = Field(default=4, ge=2, description="ranks, one process each")
    scale: str = Field(default="full", description="as in the network bench")
    steps: int = Field(default=120, ge=8, description="the baseline's length, whose end sets the target")
    sweep_steps: int = Field(default=40, ge=4, description="length of the sweep's first runs")
    seeds: int = Field(default=3, ge=1, description="of the winner and the baseline; others have one")
    winner: str = Field(default=WINNER, min_length=1, description="the contender that is judged")
    links: list[str] = Field(default=["100mbit", "25mbit", "10mbit"], description="rates of the hosts' links")
    compute: Compute = Field(default_factory=compute_here, description="type of arithmetic; default: this machine's")
    processor: str = Field(default_factory=cpu_name, description="whose steps are timed; default: this machine's")

    def curve(self, name: str, rate: float, steps: int, seed: int = 0) -> CurveSpec:
        """The settings of one run."""
        values = {"name": name, "rate": rate, "steps": steps, "seed": seed, "hosts": self.hosts, "scale": self.scale}
        values |= {"compute": self.compute, "eval_every": 10 if steps >= EVALUATIONS_FROM else 5}
        return check(CurveSpec, values)

    def deciding_steps(self, optimizer: str) -> int:
        """Length of the runs that decide on an optimizer's rate: AdamW's contenders are as long as the baseline."""
        return self.steps if optimizer == "adamw" else self.sweep_steps

    def seeds_of(self, name: str) -> range:
        """Seeds that a contender is trained with."""
        return range(self.seeds if name in (BASELINE, self.winner) else 1)

    def lengths(self, name: str) -> list[int]:
        """Lengths that a contender may be given, shortest first, in whole rounds: for AdamW the baseline's own."""
        if optimizer_of(name) == "adamw":
            return [self.steps]
        grain = math.lcm(GRAIN, period_of(name))
        return sorted({grain * max(1, round(share * self.steps / grain)) for share in SHORTER})


def period_of(name: str) -> int:
    """Steps from one exchange to the next."""
    way = read_name(name).way
    return parse_every(way).every.steps if trains_apart(way) else 1


def optimizer_of(name: str) -> str:
    """The kind of the contender's optimizer.

    Raises:
        ConfigError: one whose rate the sweep does not know.
    """
    kind = str(read_name(name).optimizer["kind"])
    if kind not in RATES:
        raise ConfigError(
            "The sweep has no rates for this optimizer.",
            field="--only",
            found=repr(name),
            expected="one of " + ", ".join(RATES),
            next_step="Use another optimizer in the contender's name.",
        )
    return kind

"""What the bench of changing links runs, and what its workers found."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field

from trainingkit.bench.network.spec import NetworkSpec
from trainingkit.core.section import Section


class ChangesSpec(Section):
    """One run: a job under the controller, whose links change their rate twice or more."""

    hosts: int = Field(default=2, ge=2)
    rates: list[str] = Field(default=["100mbit", "10mbit", "1gbit"], min_length=1)
    steps: int = Field(default=60, ge=10, description="steps at each rate")
    scale: str = "full"
    seed: int = Field(default=0, ge=0)
    timeout_s: float = Field(default=120.0, gt=0)

    def network(self) -> NetworkSpec:
        """The same job as the network bench runs."""
        return NetworkSpec(
            hosts=self.hosts, codec="auto", scale=self.scale, contenders=[], seed=self.seed, timeout_s=self.timeout_s
        )


@dataclass
class Phase:
    """Steps at one rate.

    Args:
        rate: as it was asked for.
        first_step, last_step: exchanges before the phase and at its end.
        rung: at its end.
        right: what the forecast alone picks for the link's true rate.
        behind: forecast of `rung` over that of `right`, on the link's true rate.
        moves: steps at which the controller moved, with the rung and the reason.
    """

    rate: str
    first_step: int
    last_step: int
    rung: str
    right: str
    behind: float
    moves: list[list[Any]] = field(default_factory=list)

    @property
    def steps_to_rung(self) -> int:
        """From the change until the rung of the phase's end was there."""
        return max((int(step) for step, *_ in self.moves), default=self.first_step) - self.first_step


@dataclass
class Found:
    """What all ranks found; rank 0 writes it as JSON.

    Args:
        same_decisions: whether all ranks made the same moves.
        same_bits: whether a replay of the moves came to the same parameters, on all ranks.
    """

    phases: list[Phase] = field(default_factory=list)
    same_decisions: bool = False
    same_bits: bool = False
    facts: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """As text."""
        return json.dumps(dataclasses.asdict(self))

    @staticmethod
    def from_json(text: str) -> Found:
        """From `to_json`."""
        values = json.loads(text)
        return Found(**{**values, "phases": [Phase(**phase) for phase in values["phases"]]})

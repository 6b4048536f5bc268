"""What the network bench runs: the lab's shape, the model's scale, the contenders, and how long."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field

from trainingkit.bench.paired import Turns
from trainingkit.core.errors import ConfigError
from trainingkit.core.nearest import nearest
from trainingkit.core.section import Section
from trainingkit.sync.section import DEFAULT_CODEC

REFERENCE = "none"
AGAIN = " again"
TWIN = REFERENCE + AGAIN
JUDGED = "squeezed"
GUESTS = ("plain", "bf16", "powersgd-2", "powersgd-4")
PLAIN = "plain"
KEPT_GOAL = ">= 0.95"
AUTO_GOALS = {"100mbit": ">= 0.97"}
"""Of the controller's share of the speed, by link."""
AUTO_GOAL = ">= 0.90"
VS_PLAIN_GOAL = ">= 0.98"


@dataclass(frozen=True)
class Scale:
    """A size of the job on each host: a Llama-shaped byte decoder and its batch."""

    model: dict[str, Any]
    batch_size: int
    seq_len: int
    eval_samples: int


SCALES = {
    "full": Scale(
        model={"kind": "llama", "layers": 6, "hidden": 384, "feed_forward": 1024, "heads": 6, "kv_heads": 6},
        batch_size=8,
        seq_len=256,
        eval_samples=64,
    ),
    "tiny": Scale(
        model={"kind": "llama", "layers": 2, "hidden": 64, "feed_forward": 176, "heads": 4, "kv_heads": 4},
        batch_size=2,
        seq_len=64,
        eval_samples=16,
    ),
}


class NetworkSpec(Section):
    """One run of the bench. `minutes` is what timing and losses may take together; start and warm-up come on top.

    A contender takes at least `guest_turns` turns, whatever they cost; None: three, and five beside the controller.
    """

    hosts: int = Field(default=4, description="hosts, one process on each")
    link: str = "100mbit"
    delay_s: float = 0.0
    codec: str = DEFAULT_CODEC
    scale: str = "full"
    contenders: list[str] = Field(default=list(GUESTS))
    rounds: int = Field(default=12, ge=1)
    steps_per_turn: int = Field(default=1, ge=1)
    guest_turns: int | None = Field(default=None, ge=1)
    max_every: int | None = Field(default=None, ge=1)
    minutes: float = Field(default=4.0, gt=0)
    loss_steps: int = Field(default=40, ge=0)
    eval_every: int = Field(default=5, ge=1)
    warm_steps: int = Field(default=3, ge=1)
    seed: int = Field(default=0, ge=0)
    timeout_s: float = Field(default=120.0, gt=0)

    @property
    def timing_s(self) -> float:
        """Seconds that turns may take when there are losses to be measured, too: three fifths."""
        return self.minutes * 60 * (0.6 if self.loss_steps else 1.0)

    @property
    def losses_s(self) -> float:
        """Seconds for the steps after that."""
        return self.minutes * 60 - self.timing_s

    def job(self) -> Scale:
        """The scale by its name. Raises ConfigError."""
        if self.scale not in SCALES:
            close = nearest(self.scale, SCALES)
            raise ConfigError(
                f"There is no scale called {self.scale!r}.",
                field="--scale",
                found=repr(self.scale),
                expected="one of " + ", ".join(SCALES),
                next_step=f"Did you mean {close!r}?" if close else "Choose one of these.",
            )
        return SCALES[self.scale]


@dataclass
class Measured:
    """What the workers measured, agreed over ranks; rank 0 writes it as JSON.

    Args:
        labels: the table's word for each contender.
        seconds: contender -> round -> seconds of a step.
        failed: contender -> why it takes no more turns.
        wire_bytes: contender -> bytes a step that left rank 0's interfaces, one value a turn; none outside a lab.
        said_bytes: contender -> bytes a step that rank 0 says it sent, one value a turn.
        losses: contender -> [step, validation loss] pairs.
        facts: parameters, threads, compute type, ...
    """

    labels: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, dict[int, float]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    wire_bytes: dict[str, list[float]] = field(default_factory=dict)
    said_bytes: dict[str, list[float]] = field(default_factory=dict)
    losses: dict[str, list[list[float]]] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    rounds: int = 0

    @property
    def turns(self) -> Turns:
        """The turns, for ratios."""
        return Turns(self.seconds, dict(self.failed), self.rounds)

    def to_json(self) -> str:
        """As text."""
        return json.dumps(dataclasses.asdict(self))

    @staticmethod
    def from_json(text: str) -> Measured:
        """From `to_json`; JSON's keys are texts, those of rounds become numbers again."""
        found = Measured(**json.loads(text))
        found.seconds = {
            name: {int(number): seconds for number, seconds in of.items()} for name, of in found.seconds.items()
        }
        return found

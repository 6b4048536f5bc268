"""What the recovery bench runs, and what its workers found."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from pydantic import Field, field_validator

from trainingkit.core.section import Section

SCALES: dict[str, dict[str, Any]] = {
    "full": {"layers": 6, "hidden": 256, "feed_forward": 704, "heads": 4, "kv_heads": 4, "seq_len": 256, "batch": 8},
    "small": {"layers": 3, "hidden": 128, "feed_forward": 352, "heads": 4, "kv_heads": 4, "seq_len": 128, "batch": 8},
    "tiny": {"layers": 1, "hidden": 64, "feed_forward": 128, "heads": 2, "kv_heads": 2, "seq_len": 32, "batch": 2},
}


class RecoverySpec(Section):
    """One run of the bench."""

    ranks: int = Field(default=3, ge=2, description="worker processes on this host")
    scale: str = Field(default="full", pattern="^(full|small|tiny)$", description="size of the model")
    codec: str = Field(default="all|int4(block=64)", description="how gradients travel")
    intervals_s: list[float] = Field(default=[30.0, 10.0], min_length=1, description="seconds between snapshots")
    rounds: int = Field(default=5, ge=1, description="blocks of each copy for each interval")
    seeds: int = Field(default=5, ge=0, description="runs that nobody disturbs, and as many that are killed; 0: none")

    @field_validator("seeds")
    @classmethod
    def _seeds_have_a_spread(cls, seeds: int) -> int:
        if seeds == 1:
            raise ValueError("0, or two and more: one loss has no standard deviation")
        return seeds

    def overrides(self, scale: str | None = None) -> list[str]:
        """The recipe of the bench, as settings over the default one.

        Args:
            scale: another size of the model than the bench's.
        """
        size = SCALES[scale or self.scale]
        model = {name: size[name] for name in ("layers", "hidden", "feed_forward", "heads", "kv_heads")}
        settings = {f"model.{name}": value for name, value in model.items()}
        settings |= {"data.seq_len": size["seq_len"], "batch.size": size["batch"], "workers": self.ranks}
        settings |= {"sync.codec": repr(self.codec), "eval.every": 0}
        return [f"{name}={value}" for name, value in settings.items()]


@dataclass(frozen=True)
class Block:
    """One round: as many steps of two copies without, and of two with journal and snapshots.

    Args:
        interval_s: what was asked for; the steps of one copy take about so long.
        cpu_s: processor seconds of all ranks and their threads, without and with.
        wall_s: of rank 0, likewise.
        waited_s: that steps of rank 0 waited for the journal's queue.
        again_cpu_s: processor seconds of each of the two copies without.
    """

    interval_s: float
    steps: int
    cpu_s: tuple[float, float]
    wall_s: tuple[float, float]
    waited_s: float
    again_cpu_s: tuple[float, float]


@dataclass
class Found:
    """What the workers found.

    Args:
        journal_bytes, wire_bytes: of a step, per rank.
        trained_per_s, replayed_per_s: steps; replaying includes reading and checking.
    """

    blocks: list[Block] = field(default_factory=list)
    journal_bytes: float = 0.0
    wire_bytes: float = 0.0
    trained_per_s: float = 0.0
    replayed_per_s: float = 0.0
    replayed_steps: int = 0
    facts: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """As text."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Found:
        """The inverse of `to_json`."""
        table = json.loads(text)
        pairs = ("cpu_s", "wall_s", "again_cpu_s")
        table["blocks"] = [Block(**{**row, **{name: tuple(row[name]) for name in pairs}}) for row in table["blocks"]]
        return Found(**table)

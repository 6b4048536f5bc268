"""What was measured or told, as JSON between the ranks and the command: numbers only, from which advice follows."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any

from trainingkit.sync.auto.advice import Situation
from trainingkit.sync.auto.forecast import Link, Load, Window
from trainingkit.sync.auto.ladder import Rung


@dataclass(frozen=True)
class Facts:
    """A situation, and where its numbers come from.

    Args:
        notes: parameters, threads, how the link is known, ...
    """

    situation: Situation
    notes: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """As text."""
        return json.dumps(dataclasses.asdict(self))

    @staticmethod
    def from_json(text: str) -> Facts:
        """From `to_json`."""
        found = json.loads(text)
        values: dict[str, Any] = found["situation"]
        situation = Situation(
            ranks=values["ranks"],
            link=Link(**values["link"]),
            window=Window(**values["window"]),
            rest_s=values["rest_s"],
            loads=tuple(_load(load) for load in values["loads"]),
            rungs=tuple(Rung(**rung) for rung in values["rungs"]),
        )
        return Facts(situation, found["notes"])


def _load(values: dict[str, Any]) -> Load:
    return Load(**{**values, "bucket_bytes": tuple(values["bucket_bytes"]), "ready": tuple(values["ready"])})

"""Who says how a step's gradients travel: a fixed codec, or the controller (`sync.auto`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from trainingkit.sync.auto.forecast import Load
from trainingkit.sync.auto.ladder import Rung
from trainingkit.sync.auto.seen import Seen


class Pilot(Protocol):
    """Says the rung of each step, the same on all ranks."""

    @property
    def rungs(self) -> Sequence[Rung]:
        """All that it may ever say."""
        ...

    @property
    def watches(self) -> bool:
        """Whether it wants to hear what a step cost, and samples of the messages."""
        ...

    def at(self, step: int) -> Rung:
        """How the step travels that comes after `step` others."""
        ...

    def over(self, step: int, seen: Seen, loads: Sequence[Load] | None) -> None:
        """A step is over; `step` is how many there were. All ranks call it in the same order.

        Args:
            loads: of `rungs`; None while the buckets are not known.
        """
        ...

    def settled(self, step: int) -> bool:
        """Whether, after so many steps, it sends as it will go on sending."""
        ...

    def describe(self) -> dict[str, Any]:
        """JSON-able facts: `name`, and what else a page may show."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """JSON."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue there."""
        ...


@dataclass
class Fixed:
    """One codec, after some steps in another.

    Args:
        warmup_steps: steps at the start that travel in `warmup`.
    """

    main: Rung
    warmup: Rung
    warmup_steps: int = 0
    watches = False

    @property
    def rungs(self) -> Sequence[Rung]:
        """Both."""
        return (self.main, self.warmup)

    def at(self, step: int) -> Rung:
        """By the number of the step alone."""
        return self.warmup if step < self.warmup_steps else self.main

    def over(self, step: int, seen: Seen, loads: Sequence[Load] | None) -> None:
        """Nothing to learn."""

    def settled(self, step: int) -> bool:
        """After the warm-up."""
        return step >= self.warmup_steps

    def describe(self) -> dict[str, Any]:
        """The codec and its warm-up."""
        normalise = self.main.normalise
        return {"name": self.main.codec, "warmup_steps": self.warmup_steps, "normalise": normalise}

    def state_dict(self) -> dict[str, Any]:
        """Nothing beside the number of steps, which the synchroniser keeps."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing to take over."""

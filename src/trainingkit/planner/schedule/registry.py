"""A schedule says in which order each stage takes its work, and how many micro-batches' activations it holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from trainingkit.core.registry import Registry


class Work(NamedTuple):
    """One piece: `kind` is "F" forward, "B" backward (whole, or for inputs only), "W" backward for weights."""

    kind: str
    micro: int
    chunk: int


@dataclass(frozen=True)
class Shape:
    """Stages, micro-batches, chunks of layers per stage."""

    stages: int
    micros: int
    chunks: int = 1


class Schedule(Protocol):
    """An entry: a class without state.

    `splits` says that backward is in two pieces; `folded` that odd chunks run from the last stage to the first.
    """

    splits: bool
    folded: bool
    needs_chunks: bool

    def order(self, shape: Shape, stage: int) -> list[Work]:
        """The work of one stage, in order."""
        ...

    def held(self, shape: Shape, stage: int) -> float:
        """Micro-batches whose activations of a whole stage are held at the peak (may be a fraction)."""
        ...

    def legal(self, shape: Shape) -> bool:
        """Whether it can run at all."""
        ...


SCHEDULES: Registry[Schedule] = Registry("pipeline schedule", "trainingkit.planner.schedule.kinds")

"""The registry of exchanges, what an entry must offer, and which one fits a number of ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch

from trainingkit.cluster.islands import Islands
from trainingkit.core.registry import Registry
from trainingkit.exchange.clock import StageClock
from trainingkit.exchange.lane import Lane
from trainingkit.exchange.parts import Part

Grouping = tuple[tuple[int, ...], ...]
"""One lane on all ranks: groups of ranks, each rank in one of them."""


class Seat(NamedTuple):
    """What one rank's part in an exchange is.

    Args:
        shards: into how many a bucket is cut.
        owned: the shard whose mean this rank encodes again; None where it does not.
        copies: how many messages of a shard this rank sends; on islands, to other islands.
        trips: collectives that follow each other, of those that carry messages.
    """

    shards: int
    owned: int | None
    copies: int
    trips: int


class Round(Protocol):
    """One bucket's exchange, reused every step. Its stages run in order, each on its lane's thread.

    Attributes:
        parts: where input is put and the mean is found.
        stages: called once per step each, in order; stage i of bucket b runs after stage i of bucket b - 1. Stage i
            issues on lane i; the last one only waits.
        finite: after the last stage, False when the values of any rank that counts were not finite (the same on all
            ranks).
        counted: after the last stage, False when this rank's messages did not count in the mean, because their weight
            was zero and others' was not.
    """

    parts: Sequence[Part]
    finite: bool
    counted: bool

    @property
    def stages(self) -> Sequence[Any]:
        """Callables without arguments."""
        ...


@runtime_checkable
class Repeatable(Protocol):
    """A round whose outcome is made of messages alone: who keeps them can have the agreed mean again."""

    @property
    def heard(self) -> torch.Tensor:
        """[ranks, bytes] uint8: what every rank decodes, row r said by rank r; valid until the round's next step."""
        ...

    def hear_again(self, heard: torch.Tensor) -> None:
        """Decode messages that were kept, as the last stage does: the same bits in the parts' values."""
        ...


class Exchange(Protocol):
    """An entry: says how it is built, and builds rounds."""

    def fits(self, islands: Islands) -> bool:
        """Whether it can run over these."""
        ...

    def groups(self, islands: Islands) -> tuple[Grouping, ...]:
        """The lanes: for each, which ranks form a group. A flat exchange looks at the number of ranks only."""
        ...

    def seat(self, lanes: Sequence[Lane]) -> Seat:
        """This rank's part, by its lanes."""
        ...

    def __call__(
        self,
        parts: Sequence[Part],
        lanes: Sequence[Lane],
        weight: Callable[[], float],
        clock: StageClock,
        *,
        each: int = 1,
    ) -> Round:
        """A round over parts that are cut as the seat says."""
        ...


EXCHANGES: Registry[Any] = Registry("exchange", "trainingkit.exchange.kinds")
HIERARCHICAL = "hierarchical"


def pick_exchange(world_size: int, islands: Islands | None = None) -> str:
    """The entry that is best.

    Two ranks send each other everything: as many bytes as sharded, one trip and one rounding less. Islands take two
    levels, where that fits.
    """
    if islands is not None and EXCHANGES.get(HIERARCHICAL).fits(islands):
        return HIERARCHICAL
    return "gather" if world_size == 2 else "sharded"

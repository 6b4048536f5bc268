"""The registry of exchanges, what an entry must offer, and which one fits a number of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from trainingkit.core.registry import Registry
from trainingkit.exchange.parts import Part


class Round(Protocol):
    """One bucket's exchange, reused every step. Its stages run in order, each on its lane's thread.

    Attributes:
        parts: where input is put and the mean is found.
        stages: called once per step each, in order; stage i of bucket b runs after stage i of bucket b - 1.
        finite: after the last stage, False when the values of any rank that counts were not finite (the same on all
            ranks).
        counted: after the last stage, False when this rank's weight was zero and others' was not.
    """

    parts: Sequence[Part]
    finite: bool
    counted: bool

    @property
    def stages(self) -> Sequence[Any]:
        """Callables without arguments."""
        ...


EXCHANGES: Registry[Any] = Registry("exchange", "trainingkit.exchange.kinds")


def pick_exchange(world_size: int) -> str:
    """Two ranks send each other everything: as many bytes as sharded, one trip and one rounding less."""
    return "gather" if world_size == 2 else "sharded"

"""What a coder of the frontier bench does: turn one tensor per worker into what all workers agree on.

A coder is a simulation: it returns the values that a real message would decode to, and says how many bits that
message would have. It need not pack them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

FP32_BITS = 32


@dataclass(frozen=True)
class Agreed:
    """The end of one exchange of one tensor.

    Attributes:
        mean: [*shape] fp32 - what every worker gets.
        said: one [*shape] fp32 per worker - what its message counted for; its residual becomes decay * (y - said).
    """

    mean: Tensor
    said: list[Tensor]


class Coder(Protocol):
    """One way to say a tensor. May keep warm-start state by name; an instance serves one run."""

    def bits(self, shape: tuple[int, ...]) -> float:
        """Bits of one worker's message for a tensor of that shape, one way."""
        ...

    def agree(self, ys: list[Tensor], name: str, step: int) -> Agreed:
        """Agree on one tensor.

        Args:
            ys: one [*shape] fp32 per worker - gradient or update, plus residual. Not changed.
            name: the parameter's name, the key of any warm-start state.
            step: the number of this exchange; random numbers come only from seeds derived from
                (name, step, worker).
        """
        ...


class Exact:
    """Full fp32 values: what plain data parallelism sends."""

    def bits(self, shape: tuple[int, ...]) -> float:
        """32 a value."""
        return float(FP32_BITS * torch.Size(shape).numel())

    def agree(self, ys: list[Tensor], name: str, step: int) -> Agreed:
        """The mean in fp32, in worker order; nothing is owed."""
        return Agreed(mean=mean_of(ys), said=ys)


def mean_of(values: list[Tensor]) -> Tensor:
    """The mean over workers, summed in worker order; of one worker: its very bits."""
    total = values[0].clone()
    for value in values[1:]:
        total += value
    return total if len(values) == 1 else total / len(values)

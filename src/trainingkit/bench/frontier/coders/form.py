"""A form: what messages in one number format say, and their size. Coders are made of forms.

All forms work on `y: [m, n] fp32`, m messages of n values each, and cut a message into rows in the same way.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from trainingkit.bench.frontier.coder import FP32_BITS

SCALE_BITS = 16
"""Of a block's bf16 scale."""


@dataclass(frozen=True)
class Key:
    """Where random numbers of an exchange come from.

    Attributes:
        name: the parameter's name.
        step: the number of the exchange.
        speaker: "workers" or "owner".
    """

    name: str
    step: int
    speaker: str

    def own(self, purpose: str) -> torch.Generator:
        """Numbers that only this speaker draws."""
        return _generator(f"{self.name}|{self.step}|{self.speaker}|{purpose}")

    def shared(self, purpose: str) -> torch.Generator:
        """Numbers that everybody draws alike, so that they need not be sent."""
        return _generator(f"{self.name}|{self.step}|{purpose}")


class Form(Protocol):
    """One way to write a message."""

    def bits(self, n: int) -> float:
        """Bits of the message of `n` values."""
        ...

    def said(self, y: Tensor, key: Key) -> Tensor:
        """What the messages decode to.

        Args:
            y: [m, n] fp32 - one message per row. Not changed.

        Returns:
            [m, n] fp32.
        """
        ...


class Fp32:
    """Every value as it is."""

    def bits(self, n: int) -> float:
        """32 a value."""
        return float(FP32_BITS * n)

    def said(self, y: Tensor, key: Key) -> Tensor:
        """The same values."""
        return y


def by_rows(y: Tensor, width: int, change: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply `change` to whole rows of `width` values, and to the shorter rest of each message.

    Args:
        y: [m, n] fp32.
        change: [m, rows, length] -> [m, rows, length].

    Returns:
        [m, n] fp32.
    """
    messages, n = y.shape
    whole = n - n % width
    parts = [change(y[:, :whole].reshape(messages, -1, width)).reshape(messages, whole)] if whole else []
    if n > whole:
        parts.append(change(y[:, whole:].unsqueeze(1)).squeeze(1))
    return torch.cat(parts, dim=1) if parts else y


def row_bits(n: int, width: int, bits: Callable[[int], float]) -> float:
    """Bits of `n` values cut as `by_rows` does, `bits(length)` a row."""
    whole, tail = divmod(n, width)
    return whole * bits(width) + (bits(tail) if tail else 0.0)


def as_bf16(values: Tensor) -> Tensor:
    """[*shape] fp32 rounded to bfloat16, nearest, ties to even, and back."""
    return values.bfloat16().float()


def inverse(scale: Tensor) -> Tensor:
    """1 / scale; 0 where the scale is 0, or so small that its inverse is not finite."""
    found = 1 / scale
    return torch.where(found.isfinite(), found, 0.0)


def _generator(text: str) -> torch.Generator:
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1
    return torch.Generator().manual_seed(seed)

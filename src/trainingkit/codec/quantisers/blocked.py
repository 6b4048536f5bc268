"""Blocks of values that share a scale: the base of all quantisers with scales."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from trainingkit.codec.quantisers.base import Quantiser


class Blocked(Quantiser):
    """Blocks of `block` values; each block is its scale, then its codes, in whole bytes.

    Args:
        block: values that share a scale; a multiple of 8, so that whole blocks are whole bytes.

    Attributes:
        scale_bytes: bytes of one scale; 2 are a bf16.
    """

    scale_bytes: ClassVar[int] = 2

    block: int = Field(default=64, ge=8, le=65536, multiple_of=8)

    def scale_block(self) -> int:
        """The block."""
        return self.block

    def value_bytes(self, n: int) -> int:
        """Whole blocks, then a shorter one."""
        whole, tail = divmod(n, self.block)
        return whole * self._block_bytes(self.block) + (self._block_bytes(tail) if tail else 0)

    def _block_bytes(self, length: int) -> int:
        return self.scale_bytes + (length * self.bits + 7) // 8

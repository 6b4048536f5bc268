"""`topk`: in each chunk, the values of largest magnitude."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from trainingkit.codec.selections.base import SELECTIONS, Rows, Selection


@SELECTIONS.register("topk")
class TopK(Selection):
    """Exactly `max(1, round(density * length))` of each chunk, halves rounded to even; equals by lowest index.

    Args:
        density: kept share of the values.
        chunk: values in a chunk; the last one may be shorter.
    """

    indexed: ClassVar[bool] = True

    density: float = Field(default=0.05, gt=0, le=1)
    chunk: int = Field(default=4096, ge=1, le=65536)

    def rows(self, n: int) -> list[Rows]:
        """Whole chunks, then the rest."""
        whole, tail = divmod(n, self.chunk)
        cut = [Rows(whole, self.chunk, self.keep(self.chunk)), Rows(1, tail, self.keep(tail))]
        return [rows for rows in cut if rows.count and rows.width]

    def keep(self, length: int) -> int:
        """Values sent of a chunk of this length."""
        return max(1, round(self.density * length))

    def granule(self, block: int) -> int:
        """Whole chunks."""
        return self.chunk

    def index_range(self) -> int:
        """The same for a short last chunk."""
        return self.chunk

"""`all`: every value is sent."""

from __future__ import annotations

from typing import ClassVar

from trainingkit.codec.selections.base import SELECTIONS, Rows, Selection


@SELECTIONS.register("all")
class All(Selection):
    """No choice to make, no indices to send."""

    indexed: ClassVar[bool] = False

    def rows(self, n: int) -> list[Rows]:
        """One row."""
        return [Rows(1, n, n)] if n else []

    def granule(self, block: int) -> int:
        """Whole blocks."""
        return block

    def index_range(self) -> int:
        """None are sent."""
        return 1

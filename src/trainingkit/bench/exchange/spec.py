"""What the exchange bench runs."""

from __future__ import annotations

from pydantic import Field

from trainingkit.core.section import Section

BASE_RANKS, MOST_RANKS = 4, 64
"""Flat means: as much with the second as with the first."""
REAL, SIMULATED, ISLANDS = "real", "simulated", "islands"
FLAT, TWIN, HIERARCHICAL = "sharded", "sharded again", "hierarchical"


class Task(Section):
    """One job for the worker.

    Args:
        how: REAL (a process for each rank), SIMULATED (one process for all), ISLANDS (a host of a lab for each rank).
        ranks: how many.
        islands: ranks by island, for ISLANDS.
    """

    how: str
    ranks: int
    islands: list[list[int]] = Field(default_factory=list)
    codec: str = "all|int4(block=64)"
    elements: int = Field(default=2 << 20, ge=1, description="of the gradient, fp32")
    bucket_elements: int = Field(default=1 << 19, ge=1, description="of a bucket")
    steps: int = Field(default=3, ge=2, description="steps of a footprint")
    rounds: int = Field(default=15, ge=1, description="turns of each contender")
    most_s: float = Field(default=120.0, gt=0, description="what the turns may take together")
    timeout_s: float = Field(default=120.0, gt=0, description="deadline of one collective")

    @property
    def buckets(self) -> list[int]:
        """Elements of each bucket."""
        whole, rest = divmod(self.elements, self.bucket_elements)
        return [self.bucket_elements] * whole + ([rest] if rest else [])

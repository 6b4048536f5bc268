"""What the pilot is told when a step is over: what it cost, and what each rung would put on the wire."""

from __future__ import annotations

from trainingkit.sync.auto.forecast import Load
from trainingkit.sync.auto.seen import Seen
from trainingkit.sync.buckets import Buckets, Shape
from trainingkit.sync.control import peers_watched
from trainingkit.sync.pilot import Pilot


class Briefing:
    """Tells the pilot of steps, in order. All ranks do at the same steps: a pilot may exchange what ranks saw.

    Args:
        pilot: who hears.
        buckets: know what a message of theirs takes.
        ranks: number of ranks.

    Attributes:
        shapes: of the step's buckets, as far as they have been seen.
    """

    def __init__(self, pilot: Pilot, buckets: Buckets, ranks: int) -> None:
        self.shapes: list[Shape] = []
        self._pilot = pilot
        self._buckets = buckets
        self._ranks = ranks
        self._of: list[Shape] = []
        self._loads: list[Load] = []

    def over(self, step: int, seen: Seen, *, loads: bool) -> None:
        """A step is over.

        Args:
            step: how many there were.
            loads: whether the buckets of these shapes are those that will travel.

        Raises:
            PeerLost: a peer is gone.
        """
        with peers_watched():
            self._pilot.over(step, seen, self._loads_by_rung() if loads and self._pilot.watches else None)

    def _loads_by_rung(self) -> list[Load]:
        """Of the pilot's rungs; made anew where the shapes are others."""
        if self._of != self.shapes:
            self._of = list(self.shapes)
            self._loads = self._buckets.loads(self.shapes, self._pilot.rungs, self._ranks)
        return self._loads

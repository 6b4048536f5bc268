"""All-gather exchange: every rank sends its whole message to every other and takes the mean itself.

    say      encode; the message goes to every rank    all-gather on lane 0
    hear     sum in rank order, fp32

Each rank sends N-1 messages: for two ranks as much as the sharded exchange, in one trip and with one rounding less.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from trainingkit.cluster.islands import Islands
from trainingkit.exchange import messages
from trainingkit.exchange.clock import StageClock
from trainingkit.exchange.lane import Lane
from trainingkit.exchange.parts import Part
from trainingkit.exchange.registry import EXCHANGES, Grouping, Seat
from trainingkit.exchange.work import Pending


@EXCHANGES.register("gather")
class GatherRound:
    """One bucket's all-gather exchange.

    Args:
        parts: built with one owner.
        lanes: one.
        weight: gives this rank's weight in the mean.
        each: of how many ranks the values are the sum.
    """

    @staticmethod
    def fits(islands: Islands) -> bool:
        """Over any ranks."""
        return True

    @staticmethod
    def groups(islands: Islands) -> tuple[Grouping, ...]:
        """One lane over all ranks."""
        return (Islands.flat(islands.ranks).groups,)

    @staticmethod
    def seat(lanes: Sequence[Lane]) -> Seat:
        """Nobody re-encodes: the message is whole."""
        return Seat(shards=1, owned=None, copies=lanes[0].world_size - 1, trips=1)

    def __init__(
        self,
        parts: Sequence[Part],
        lanes: Sequence[Lane],
        weight: Callable[[], float],
        clock: StageClock,
        *,
        each: int = 1,
    ) -> None:
        size = messages.total_bytes(parts)
        self.parts = parts
        self.finite = True
        self.counted = True
        self.stages = (self._say, self._hear)
        self._lanes = lanes
        self._weight = weight
        self._clock = clock
        self._each = each
        self._sent = torch.zeros(1, size, dtype=torch.uint8)
        self._received = torch.zeros(lanes[0].world_size, size, dtype=torch.uint8)
        self._said: Pending | None = None

    @property
    def heard(self) -> torch.Tensor:
        """All ranks' messages."""
        return self._received

    def hear_again(self, heard: torch.Tensor) -> None:
        """See `exchange.registry.Repeatable`."""
        self.finite, factors = messages.listen(heard)
        self.counted = factors[self._lanes[0].rank] != 0
        pieces = [part.values.pieces for part in self.parts]
        messages.mean(self.parts, heard, factors, pieces, each=self._each)

    def _say(self) -> None:
        with self._clock.stage("encode"):
            messages.say(self.parts, self._sent, weight=self._weight())
        self._said = Pending(self._lanes[0].all_gather(self._received, self._sent[0]))

    def _hear(self) -> None:
        assert self._said is not None
        with self._clock.stage("wire"):
            self._said.wait()
        with self._clock.stage("decode"):
            self.hear_again(self._received)

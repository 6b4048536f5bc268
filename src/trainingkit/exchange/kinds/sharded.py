"""Owner-sharded exchange: bytes and memory per rank do not grow with the number of ranks.

    say      encode; row r of the messages goes to owner r            all-to-all on lane 0
    answer   sum in rank order, fp32; re-encode with the own residual  all-gather on lane 1
    hear     decode every owner's reply

Each rank sends 2 (N-1)/N messages of the whole bucket. The idea of all-to-all, fp32 sum, all-gather is that of 1-bit
Adam's compressed all-reduce (Tang et al., ICML 2021), with residuals on both sides.
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


@EXCHANGES.register("sharded")
class ShardedRound:
    """One bucket's owner-sharded exchange.

    Args:
        parts: built with one owner per rank.
        lanes: two.
        weight: gives this rank's weight in the mean.
        each: of how many ranks the values are the sum.
    """

    @staticmethod
    def fits(islands: Islands) -> bool:
        """Over any ranks."""
        return True

    @staticmethod
    def groups(islands: Islands) -> tuple[Grouping, ...]:
        """Two lanes over all ranks."""
        return (Islands.flat(islands.ranks).groups,) * 2

    @staticmethod
    def seat(lanes: Sequence[Lane]) -> Seat:
        """Every rank owns a shard."""
        ranks = lanes[0].world_size
        return Seat(shards=ranks, owned=lanes[0].rank, copies=2 * (ranks - 1), trips=2)

    def __init__(
        self,
        parts: Sequence[Part],
        lanes: Sequence[Lane],
        weight: Callable[[], float],
        clock: StageClock,
        *,
        each: int = 1,
    ) -> None:
        ranks = lanes[0].world_size
        size = messages.total_bytes(parts)
        self.parts = parts
        self.finite = True
        self.counted = True
        self.stages = (self._say, self._answer, self._hear)
        self._lanes = lanes
        self._weight = weight
        self._clock = clock
        self._each = each
        self._sent = torch.zeros(ranks, size, dtype=torch.uint8)
        self._received = torch.zeros(ranks, size, dtype=torch.uint8)
        self._reply = torch.zeros(size, dtype=torch.uint8)
        self._replies = torch.zeros(ranks, size, dtype=torch.uint8)
        self._sums = [torch.zeros(part.shard) for part in parts]
        self._asked: Pending | None = None
        self._answered: Pending | None = None

    @property
    def heard(self) -> torch.Tensor:
        """The owners' replies."""
        return self._replies

    def hear_again(self, heard: torch.Tensor) -> None:
        """See `exchange.registry.Repeatable`."""
        self.finite = messages.hear(self.parts, heard)

    def _say(self) -> None:
        with self._clock.stage("encode"):
            messages.say(self.parts, self._sent, weight=self._weight())
        self._asked = Pending(self._lanes[0].all_to_all(self._received, self._sent))

    def _answer(self) -> None:
        assert self._asked is not None
        with self._clock.stage("wire"):
            self._asked.wait()
        with self._clock.stage("encode"):
            factors = messages.answer(self.parts, self._received, self._reply, self._sums, each=self._each)
            self.counted = factors[self._lanes[0].rank] != 0
        self._answered = Pending(self._lanes[1].all_gather(self._replies, self._reply))

    def _hear(self) -> None:
        assert self._answered is not None
        with self._clock.stage("wire"):
            self._answered.wait()
        with self._clock.stage("decode"):
            self.hear_again(self._replies)

"""Rounds of any exchange over any islands: how parts are made, for ranks in this process and for real ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from ranks import Context
from trainingkit.cluster.islands import Islands
from trainingkit.codec import Codec
from trainingkit.exchange import EXCHANGES
from trainingkit.exchange.clock import StageClock
from trainingkit.exchange.lane import Lane
from trainingkit.exchange.memory import drive, memory_lanes
from trainingkit.exchange.parts import Layout, Part, Piece, Residuals, Values

INT4, INT8, TOPK, BF16 = "all|int4(block=64)", "all|int8(block=64)", "topk(density=0.05, chunk=64)|int4", "all|bf16"
GRANULE = 64
ELEMENTS = 3000

SHAPES: dict[int, list[list[list[int]]]] = {
    2: [[[0, 1]]],
    3: [[[0, 1, 2]]],
    4: [[[0, 1, 2, 3]], [[0, 1], [2, 3]], [[0, 3], [1, 2]]],
    6: [[[0, 1, 2], [3, 4, 5]], [[0, 1], [2, 3], [4, 5]]],
    8: [[[0, 1, 2, 3], [4, 5, 6, 7]], [[0, 4], [1, 5], [2, 6], [3, 7]]],
}


def built(ranks: int) -> list[tuple[str, Islands]]:
    """Every exchange over every shape of islands that fits it; a new entry of the registry is among them."""
    shapes = [Islands.of(shape) for shape in SHAPES[ranks]]
    return [(name, shape) for name in EXCHANGES.names() for shape in shapes if EXCHANGES.get(name).fits(shape)]


def all_built() -> list[tuple[str, Islands]]:
    return [each for ranks in SHAPES for each in built(ranks)]


def named(built_as: tuple[str, Islands]) -> str:
    return f"{built_as[0]}:{built_as[1]}"


def real_lanes(context: Context, exchange: str, islands: Islands) -> list[Lane]:
    """The lanes as the exchange says; collective."""
    lanes = []
    for grouping in EXCHANGES.get(exchange).groups(islands):
        made = [dist.new_group(list(ranks), backend="gloo") for ranks in grouping]
        own = next(group for group, ranks in zip(made, grouping, strict=True) if context.rank in ranks)
        lanes.append(Lane(own))
    return lanes


class OneRank:
    """One part's elements of one rank, with residuals, for rounds of several codecs after each other."""

    def __init__(self, exchange: str, lanes: Sequence[Lane], elements: int = ELEMENTS, granule: int = GRANULE) -> None:
        self.kind = EXCHANGES.get(exchange)
        self.lanes = lanes
        self.seat = self.kind.seat(lanes)
        self.layout = Layout(elements, self.seat.shards, granule, self.seat.owned is not None)
        self.values = torch.zeros(self.layout.padded)
        self.residuals = Residuals.zeros(self.layout)

    def round(self, spec: str, weight: float = 1.0) -> Any:
        """A round over what is in `values`, in two pieces where there are two granules."""
        cut = self.layout.granule
        pieces = [Piece(0, self.values[:cut]), Piece(cut, self.values[cut:])]
        values = Values([piece for piece in pieces if piece.tensor.numel()])
        part = Part(Codec(spec), self.layout, values, self.residuals)
        return self.kind([part], self.lanes, lambda: weight, StageClock())

    def put(self, x: torch.Tensor) -> None:
        self.values[: x.numel()] = x

    @property
    def mean(self) -> torch.Tensor:
        assert not self.values[self.layout.elements :].any(), "padding stays zero"
        return self.values[: self.layout.elements].clone()

    @property
    def sent_bytes(self) -> int:
        return sum(lane.sent_bytes for lane in self.lanes)


class AllRanks:
    """Every rank of an exchange, in this process."""

    def __init__(self, built_as: tuple[str, Islands], **options: Any) -> None:
        exchange, islands = built_as
        self.ranks = [OneRank(exchange, lanes, **options) for lanes in memory_lanes(exchange, islands)]

    def exchange(self, inputs: Sequence[torch.Tensor], spec: str, weights: Sequence[float] | None = None) -> list[Any]:
        """One round, not committed; the rounds of all ranks."""
        rounds = []
        for index, (rank, x) in enumerate(zip(self.ranks, inputs, strict=True)):
            rank.put(x)
            rounds.append(rank.round(spec, weights[index] if weights else 1.0))
        drive(rounds)
        return rounds

    def agreed(self) -> torch.Tensor:
        """The mean, which must be the same bits on all ranks."""
        for rank in self.ranks[1:]:
            assert torch.equal(rank.mean.view(torch.int32), self.ranks[0].mean.view(torch.int32))
        return self.ranks[0].mean

    def commit(self, rounds: Sequence[Any]) -> None:
        for rank, round_ in zip(self.ranks, rounds, strict=True):
            rank.residuals.commit(counted=round_.counted)

    def pending(self) -> torch.Tensor:
        """What is owed of the mean by all ranks: (1/N) sum of own, plus the answers; [elements] float64."""
        total = torch.stack([rank.residuals.own.double() for rank in self.ranks]).sum(0) / len(self.ranks)
        for rank in self.ranks:
            answer = rank.residuals.answer
            if answer is not None:
                assert rank.seat.owned is not None
                start = rank.seat.owned * rank.layout.shard
                total[start : start + answer.numel()] += answer
        return total[: self.ranks[0].layout.elements]


def eighths(step: int, rank: int, n: int = ELEMENTS) -> torch.Tensor:
    """Multiples of 1/8: sums and codes of them are exact in fp32."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randint(-40, 41, (n,), generator=generator) / 8.0

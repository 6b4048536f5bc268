"""The exchanges against a reference that is written out here: one loop over ranks, torch kernels, shard by shard."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import torch
import torch.distributed as dist

from ranks import Context, Pool
from trainingkit.cluster.islands import Islands
from trainingkit.codec import Codec
from trainingkit.exchange import EXCHANGES, pick_exchange
from trainingkit.exchange.clock import StageClock
from trainingkit.exchange.header import HEADER_BYTES
from trainingkit.exchange.lane import Lane
from trainingkit.exchange.parts import Layout, Part, Piece, Residuals, Values

GRANULE = 4096
STEPS = 3


@dataclass(frozen=True)
class Case:
    """Elements that are squeezed and exempt, what carries the squeezed ones in each step, and weights of ranks."""

    exchange: str
    squeezed: int
    exempt: int
    specs: tuple[str, ...]
    weights: tuple[float, ...] = (1.0,)


INT4, INT8, TOPK = "all|int4(block=64)", "all|int8(block=64)", "topk(density=0.05, chunk=4096)|int4"
SPECS = [(INT4,) * STEPS, (TOPK,) * STEPS, (INT8, TOPK, INT4)]
SIZES = [(1, 0), (0, 5), (4097, 64), (40_001, 333)]
CASES = [
    Case(exchange, squeezed, exempt, SPECS[(index + shift) % 3], (1.0,) if index % 2 else (3.0, 5.0, 1.0))
    for shift, exchange in enumerate(("sharded", "gather"))
    for index, (squeezed, exempt) in enumerate(SIZES)
]


def values_of(case: Case, rank: int, step: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(10_000 * step + 100 * rank + case.squeezed % 97)
    sizes = (case.squeezed, case.exempt)
    return [torch.randn(n, generator=generator) * 10.0 ** (step - rank % 3) for n in sizes]


def weight_of(case: Case, rank: int) -> float:
    return case.weights[rank % len(case.weights)]


def parts_of(
    case: Case, owners: int, codec: Codec, carried: list[tuple[Layout, torch.Tensor, Residuals]]
) -> list[Part]:
    codecs = [codec, Codec("all|bf16")]
    return [
        Part(each, layout, in_pieces(values, layout), owed)
        for each, (layout, values, owed) in zip(codecs, carried, strict=True)
    ]


def in_pieces(values: torch.Tensor, layout: Layout) -> Values:
    """Three pieces that are cut at granules, the second one in other memory; fewer where there are fewer granules."""
    cuts = sorted({0, layout.granule, (layout.padded // layout.granule // 2 + 1) * layout.granule, layout.padded})
    cuts = [cut for cut in cuts if cut <= layout.padded]
    return Values([Piece(start, values[start:stop]) for start, stop in itertools.pairwise(cuts)])


def exchanged(context: Context, cases: Sequence[Case]) -> list[list[list[torch.Tensor]]]:
    """Per case and step: the agreed means."""
    lanes = [Lane(dist.new_group(backend="gloo")) for _ in range(2)]
    return [_one_case(context, case, lanes) for case in cases]


def _one_case(context: Context, case: Case, lanes: Sequence[Lane]) -> list[list[torch.Tensor]]:
    kind = EXCHANGES.get(case.exchange)
    owners = kind.seat(lanes).shards
    layouts = [Layout(case.squeezed, owners, GRANULE), Layout(case.exempt, owners, 1)]
    carried = [(layout, torch.zeros(layout.padded), Residuals.zeros(layout)) for layout in layouts]
    found = []
    for step in range(STEPS):
        parts = parts_of(case, owners, Codec(case.specs[step]), carried)
        wholes = [values for _, values, _ in carried]
        round_ = kind(parts, lanes, lambda: weight_of(case, context.rank), StageClock())
        for whole, values in zip(wholes, values_of(case, context.rank, step), strict=True):
            whole[: values.numel()] = values
        sent = sum(lane.sent_bytes for lane in lanes)
        for stage in round_.stages:
            stage()
        assert round_.finite and round_.counted
        _check_bytes(case, context.world_size, sum(lane.sent_bytes for lane in lanes) - sent)
        for part, whole in zip(parts, wholes, strict=True):
            assert not whole[part.layout.elements :].any(), "padding stays zero"
            part.residuals.commit()
        found.append([whole[: part.layout.elements].clone() for part, whole in zip(parts, wholes, strict=True)])
    return found


def _check_bytes(case: Case, ranks: int, sent: int) -> None:
    """Fixed beforehand, whatever the values: 2 (N-1) messages of a shard, or N-1 of the whole."""
    sizes = {Codec(spec).message_bytes(GRANULE) for spec in case.specs}
    per_rank = 2 if case.exchange == "sharded" else 1
    assert sent % (per_rank * (ranks - 1)) == 0
    message = sent // (per_rank * (ranks - 1))
    owners = ranks if case.exchange == "sharded" else 1
    chunks = max(1, -(-case.squeezed // (GRANULE * owners)))
    exempt = max(1, -(-case.exempt // owners))
    assert message in {HEADER_BYTES + chunks * size + 2 * exempt for size in sizes}


class Reference:
    """All ranks in one process, one codec, torch kernels: the definition of both exchanges."""

    def __init__(self, n: int, ranks: int, owners: int, granule: int) -> None:
        self.ranks, self.owners = ranks, owners
        self.shard = granule
        while self.shard * owners < n:
            self.shard += granule
        self.own = [[torch.zeros(self.shard) for _ in range(owners)] for _ in range(ranks)]
        self.owed = [torch.zeros(self.shard) for _ in range(owners)]

    def step(self, codec: Codec, inputs: Sequence[torch.Tensor], weights: Sequence[float]) -> torch.Tensor:
        mean = torch.zeros(self.owners, self.shard)
        total = sum(weights)
        for owner in range(self.owners):
            for rank in range(self.ranks):
                x = torch.zeros(self.owners * self.shard)
                x[: inputs[rank].numel()] = inputs[rank]
                said, self.own[rank][owner] = _through(codec, x.view(self.owners, -1)[owner], self.own[rank][owner])
                factor = 1.0 if len(set(weights)) == 1 else self.ranks * weights[rank] / total
                mean[owner] += said * torch.tensor(factor, dtype=torch.float32)
            mean[owner] *= 1.0 / self.ranks
            if self.owners > 1:
                mean[owner], self.owed[owner] = _through(codec, mean[owner].clone(), self.owed[owner])
        return mean.flatten()[: inputs[0].numel()]


def _through(codec: Codec, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    message = torch.zeros(codec.message_bytes(x.numel()), dtype=torch.uint8)
    said, owed = torch.zeros_like(x), torch.zeros_like(x)
    codec.encode(x, residual, message, owed)
    codec.decode(message, said)
    return said, owed


def expected(case: Case, ranks: int) -> list[list[torch.Tensor]]:
    owners = ranks if case.exchange == "sharded" else 1
    references = [Reference(case.squeezed, ranks, owners, GRANULE), Reference(case.exempt, ranks, owners, 1)]
    weights = [weight_of(case, rank) for rank in range(ranks)]
    found = []
    for step in range(STEPS):
        codecs = [reference_codec(case.specs[step]), reference_codec("all|bf16")]
        inputs = zip(*(values_of(case, rank, step) for rank in range(ranks)), strict=True)
        found.append(
            [
                reference.step(codec, given, weights)
                for reference, codec, given in zip(references, codecs, inputs, strict=True)
            ]
        )
    return found


@functools.cache
def reference_codec(spec: str) -> Codec:
    return Codec(spec, kernel="torch")


@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 8])
def test_the_mean_is_the_reference_bit_for_bit_on_all_ranks(pool: Pool, ranks: int) -> None:
    ended = pool.run(exchanged, ranks, CASES)
    for index, case in enumerate(CASES):
        wanted = expected(case, ranks)
        for rank in range(ranks):
            for step in range(STEPS):
                for got, want in zip(ended[rank][index][step], wanted[step], strict=True):
                    assert torch.equal(got, want), f"{case}, rank {rank}, step {step}"


def test_two_ranks_gather_and_more_are_sharded() -> None:
    assert [pick_exchange(ranks) for ranks in (2, 3, 4, 64)] == ["gather", "sharded", "sharded", "sharded"]


@pytest.mark.parametrize(
    ("islands", "wanted"),
    [
        ([[0, 1], [2, 3]], "hierarchical"),
        ([[0, 2, 4], [1, 3, 5]], "hierarchical"),
        ([[0, 1, 2, 3]], "sharded"),
        ([[0], [1], [2]], "sharded"),
        ([[0], [1]], "gather"),
        ([[0, 1], [2]], "sharded"),
    ],
)
def test_islands_of_one_size_take_two_levels(islands: list[list[int]], wanted: str) -> None:
    found = Islands.of(islands)
    assert pick_exchange(found.ranks, found) == wanted


def flagged(context: Context, exchange: str, weights: list[float], bad_rank: int) -> tuple[bool, bool, bool]:
    """(finite, counted, whether the mean is finite) of a round in which one rank's last element is not finite."""
    kind = EXCHANGES.get(exchange)
    lanes = [Lane(dist.new_group(backend="gloo")) for _ in range(2)]
    layout = Layout(300, kind.seat(lanes).shards, 64)
    residuals = Residuals.zeros(layout)
    values = torch.ones(layout.padded)
    values[300:] = 0.0
    if context.rank == bad_rank:
        values[299] = float("inf")
    part = Part(Codec(INT4), layout, in_pieces(values, layout), residuals)
    round_ = kind([part], lanes, lambda: weights[context.rank], StageClock())
    for stage in round_.stages:
        stage()
    return round_.finite, round_.counted, bool(values.isfinite().all())


@pytest.mark.parametrize("exchange", ["sharded", "gather"])
def test_what_is_not_finite_on_one_rank_is_known_to_all(pool: Pool, exchange: str) -> None:
    assert pool.run(flagged, 3, exchange, [1.0, 1.0, 1.0], 2) == [(False, True, True)] * 3
    assert pool.run(flagged, 3, exchange, [1.0, 1.0, 1.0], 9) == [(True, True, True)] * 3


@pytest.mark.parametrize("exchange", ["sharded", "gather"])
def test_a_rank_of_weight_zero_takes_no_part(pool: Pool, exchange: str) -> None:
    ended = pool.run(flagged, 3, exchange, [2.0, 0.0, 1.0], 1)
    assert ended == [(True, True, True), (True, False, True), (True, True, True)]
    assert pool.run(flagged, 3, exchange, [0.0, 0.0, 0.0], 1) == [(False, True, True)] * 3, "no weights: all count"

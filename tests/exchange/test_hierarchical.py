"""The exchange on two levels against a reference that is written out here, and states that come from elsewhere."""

from __future__ import annotations

import pytest
import torch
from island_rounds import ELEMENTS, GRANULE, INT4, TOPK, AllRanks, eighths

from trainingkit.cluster.islands import Islands
from trainingkit.codec import Codec

TWO_BY_TWO = Islands.of([[0, 1], [2, 3]])
SHAPES = [TWO_BY_TWO, Islands.of([[0, 2], [1, 3]]), Islands.of([[0, 1, 2], [3, 4, 5]])]


class Reference:
    """Two islands: dense sums, then each place's shard coded once by each island and summed in island order."""

    def __init__(self, islands: Islands) -> None:
        self.islands = islands
        assert islands.size is not None
        self.places = islands.size
        self.shard = GRANULE * -(-ELEMENTS // (GRANULE * self.places))
        self.owed = torch.zeros(len(islands.groups), self.places, self.shard)

    def step(self, codec: Codec, inputs: list[torch.Tensor]) -> torch.Tensor:
        mean = torch.zeros(self.places, self.shard)
        for island, group in enumerate(self.islands.groups):
            for place in range(self.places):
                total = torch.zeros(self.shard)
                for rank in group:
                    x = torch.zeros(self.places * self.shard)
                    x[:ELEMENTS] = inputs[rank]
                    total += x.view(self.places, -1)[place]
                message = torch.zeros(codec.message_bytes(self.shard), dtype=torch.uint8)
                said, owed = torch.zeros(self.shard), torch.zeros(self.shard)
                codec.encode(total, self.owed[island, place].clone(), message, owed)
                codec.decode(message, said)
                self.owed[island, place] = owed
                mean[place] += said
        return (mean * (1.0 / len(inputs))).flatten()[:ELEMENTS]


@pytest.mark.parametrize("islands", SHAPES, ids=str)
def test_the_mean_is_the_reference_bit_for_bit(islands: Islands) -> None:
    job, reference = AllRanks(("hierarchical", islands)), Reference(islands)
    for step, spec in enumerate([INT4, TOPK, INT4]):
        inputs = [torch.randn(ELEMENTS, generator=torch.Generator().manual_seed(10 * step + r)) for r in range(4)]
        inputs += [torch.ones(ELEMENTS) * rank for rank in range(4, islands.ranks)]
        wanted = reference.step(Codec(spec, kernel="torch"), inputs)
        job.commit(job.exchange(inputs, spec))
        assert torch.equal(job.agreed(), wanted)


def test_a_rank_owes_of_its_own_shard_only() -> None:
    job = AllRanks(("hierarchical", TWO_BY_TWO))
    job.commit(job.exchange([eighths(0, rank) for rank in range(4)], TOPK))
    half = job.ranks[0].layout.padded // 2
    for rank, one in enumerate(job.ranks):
        mine, others = one.residuals.own[:half], one.residuals.own[half:]
        if rank % 2:
            mine, others = others, mine
        assert mine.any() and not others.any()
        assert one.residuals.answer is None, "between two islands nobody encodes a mean again"


def with_debts(islands: Islands, seed: int) -> AllRanks:
    """As after a flat exchange's state was loaded: every rank owes of all elements."""
    job = AllRanks(("hierarchical", islands))
    for rank, one in enumerate(job.ranks):
        one.residuals.own[:ELEMENTS] = eighths(seed, rank)
    return job


@pytest.mark.parametrize("islands", [TWO_BY_TWO, Islands.of([[0, 1], [2, 3], [4, 5], [6, 7]])], ids=str)
def test_what_a_flat_exchange_left_owing_is_paid_once(islands: Islands) -> None:
    job, count = with_debts(islands, 77), islands.ranks
    given, got = job.pending(), torch.zeros(ELEMENTS, dtype=torch.float64)
    job.exchange([eighths(9, rank) for rank in range(count)], INT4)  # aborted
    for step, spec in enumerate([INT4, TOPK, INT4, TOPK]):
        inputs = [eighths(step, rank) for rank in range(count)]
        given = given + torch.stack(inputs).double().mean(0)
        rounds = job.exchange(inputs, spec)
        got += job.agreed()
        job.commit(rounds)
    assert torch.equal(given, got + job.pending())


def test_a_debt_waits_while_its_rank_has_no_weight() -> None:
    job = with_debts(TWO_BY_TWO, 5)
    outside = slice(job.ranks[0].layout.padded // 2, ELEMENTS)
    debt = job.ranks[0].residuals.own[outside].clone()
    for step in range(2):
        inputs = [eighths(step, rank) for rank in range(4)]
        job.commit(job.exchange(inputs, INT4, [0.0, 1.0, 1.0, 1.0]))
        assert torch.equal(job.ranks[0].residuals.own[outside], debt)
    job.commit(job.exchange([eighths(3, rank) for rank in range(4)], INT4))
    assert not job.ranks[0].residuals.own[outside].any()
    job.commit(job.exchange([eighths(4, rank) for rank in range(4)], INT4))
    assert not job.ranks[0].residuals.own[outside].any(), "the twin has forgotten it, too"


@pytest.mark.parametrize("shape", [[[0, 1], [2]], [[0], [1]], [[0, 1, 2, 3]]])
def test_other_islands_do_not_fit(shape: list[list[int]]) -> None:
    from trainingkit.exchange import EXCHANGES

    assert not EXCHANGES.get("hierarchical").fits(Islands.of(shape))

"""What every exchange promises, over every shape of islands that fits it: same bits, nothing lost, flags, weights.

Ranks are in this process, where many are cheap; one test says that real ranks come to the same bits.
"""

from __future__ import annotations

import pytest
import torch
from island_rounds import ELEMENTS, INT4, INT8, TOPK, AllRanks, OneRank, all_built, built, eighths, named, real_lanes

from ranks import Context, Pool
from trainingkit.cluster.islands import Islands
from trainingkit.codec import Codec
from trainingkit.exchange import EXCHANGES
from trainingkit.exchange.header import HEADER_BYTES

Built = tuple[str, Islands]
SPECS = (INT4, TOPK, INT8, TOPK, INT4)
every_exchange = pytest.mark.parametrize("built_as", all_built(), ids=named)


def test_every_entry_takes_part() -> None:
    assert {name for name, _ in all_built()} == set(EXCHANGES.names())


@every_exchange
def test_nothing_is_lost_and_bytes_are_fixed(built_as: Built) -> None:
    """Decoded plus owed is the mean of what was given: to the last bit, where 1/N is a power of two."""
    job, count = AllRanks(built_as), built_as[1].ranks
    given, got = torch.zeros(ELEMENTS, dtype=torch.float64), torch.zeros(ELEMENTS, dtype=torch.float64)
    for step, spec in enumerate(SPECS):
        inputs = [eighths(step, rank) for rank in range(count)]
        before = [rank.sent_bytes for rank in job.ranks]
        rounds = job.exchange(inputs, spec)
        given += torch.stack(inputs).double().mean(0)
        got += job.agreed()
        job.commit(rounds)
        assert len({rank.sent_bytes - sent for rank, sent in zip(job.ranks, before, strict=True)}) == 1
    owed = job.pending()
    assert owed.any(), "something is owed, or the test says nothing"
    exact = count & (count - 1) == 0
    assert float((given - got - owed).abs().max()) <= (0.0 if exact else len(SPECS) * 8 * 2.0**-23)


@every_exchange
def test_an_aborted_round_changes_nothing(built_as: Built) -> None:
    count = built_as[1].ranks
    calm, aborting = AllRanks(built_as), AllRanks(built_as)
    for step, spec in enumerate(SPECS[:3]):
        inputs = [eighths(step, rank) for rank in range(count)]
        aborting.exchange([x * 3 for x in inputs], TOPK)
        for job in (calm, aborting):
            job.commit(job.exchange(inputs, spec))
        assert torch.equal(calm.agreed(), aborting.agreed())


@every_exchange
def test_messages_are_what_the_seat_says(built_as: Built) -> None:
    job = AllRanks(built_as)
    job.exchange([eighths(0, rank) for rank in range(built_as[1].ranks)], INT4)
    for rank in job.ranks:
        seat, lanes = rank.seat, rank.lanes
        across = lanes if len(lanes) == seat.trips else lanes[1:-1]
        assert len(across) == seat.trips
        message = HEADER_BYTES + Codec(INT4).message_bytes(rank.layout.shard)
        assert sum(lane.sent_bytes for lane in across) == seat.copies * message > 0


@every_exchange
@pytest.mark.parametrize("bad", [0, -1])
def test_what_is_not_finite_on_one_rank_is_known_to_all(built_as: Built, bad: int) -> None:
    inputs = [torch.ones(ELEMENTS) for _ in range(built_as[1].ranks)]
    assert all(round_.finite for round_ in AllRanks(built_as).exchange(inputs, INT4))
    for number in (float("inf"), float("nan")):
        inputs[bad][ELEMENTS - 1] = number
        rounds = AllRanks(built_as).exchange(inputs, INT4)
        assert [round_.finite for round_ in rounds] == [False] * len(rounds)
        assert all(round_.counted for round_ in rounds)


@every_exchange
def test_what_a_rank_of_weight_zero_says_does_not_matter(built_as: Built) -> None:
    count = built_as[1].ranks
    inputs = [torch.full((ELEMENTS,), float("nan")), *(torch.ones(ELEMENTS) for _ in range(count - 1))]
    job = AllRanks(built_as)
    rounds = job.exchange(inputs, INT4, [0.0] + [2.0] * (count - 1))
    assert all(round_.finite for round_ in rounds)
    assert bool(job.agreed().isfinite().all())
    silent = AllRanks(built_as).exchange(inputs, INT4, [0.0] * count)
    assert not any(round_.finite for round_ in silent), "no weights: all count"
    assert all(round_.counted for round_ in silent)


@every_exchange
@pytest.mark.parametrize("step", range(2))
def test_the_mean_is_weighted(built_as: Built, step: int) -> None:
    count = built_as[1].ranks
    weights = torch.randint(0, 4, (count,), generator=torch.Generator().manual_seed(step)).tolist()
    inputs = [eighths(step, rank) for rank in range(count)]
    job = AllRanks(built_as, granule=1)
    job.exchange(inputs, "all|fp32", [float(weight) for weight in weights])
    total = sum(weights) or count
    shares = [(weight if sum(weights) else 1) / total for weight in weights]
    wanted = sum(share * x.double() for share, x in zip(shares, inputs, strict=True))
    torch.testing.assert_close(job.agreed().double(), wanted, rtol=1e-6, atol=1e-6)


def on_real_ranks(context: Context, cases: list[Built]) -> list[torch.Tensor]:
    found = []
    for exchange, islands in cases:
        rank = OneRank(exchange, real_lanes(context, exchange, islands))
        for step, spec in enumerate(SPECS):
            rank.put(eighths(step, context.rank) / 3.0)
            round_ = rank.round(spec, weight=1.0 + context.rank % 2)
            for stage in round_.stages:
                stage()
            rank.residuals.commit(counted=round_.counted)
        found.append(rank.mean)
    return found


@pytest.mark.parametrize("ranks", [4, 6, 8])
def test_real_ranks_come_to_the_same_bits(pool: Pool, ranks: int) -> None:
    cases = built(ranks)
    ended = pool.run(on_real_ranks, ranks, cases)
    for index, case in enumerate(cases):
        job = AllRanks(case)
        for step, spec in enumerate(SPECS):
            inputs = [eighths(step, rank) / 3.0 for rank in range(ranks)]
            job.commit(job.exchange(inputs, spec, [1.0 + rank % 2 for rank in range(ranks)]))
        wanted = job.agreed()
        for one in ended:
            assert torch.equal(one[index], wanted), case

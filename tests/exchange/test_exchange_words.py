"""Header, lane, layout, residuals, factors and clock: the small words of the exchange."""

from __future__ import annotations

import math
import struct
from fractions import Fraction

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

from ranks import Context, Pool
from trainingkit.codec import Codec
from trainingkit.exchange.clock import KINDS, StageClock
from trainingkit.exchange.header import HEADER_BYTES, read_header, write_header
from trainingkit.exchange.lane import Lane
from trainingkit.exchange.messages import listen, mean_factors
from trainingkit.exchange.parts import Layout, Residuals

FP32 = st.floats(width=32, min_value=0.0, allow_infinity=False)


@settings(deadline=None, max_examples=200)
@given(finite=st.booleans(), weight=FP32, rest=st.binary(max_size=9))
def test_a_header_reads_back_and_touches_nothing_else(finite: bool, weight: float, rest: bytes) -> None:
    message = torch.tensor(list(b"\xaa" * HEADER_BYTES + rest), dtype=torch.uint8)
    write_header(message, finite=finite, weight=weight)
    assert read_header(message) == (finite, weight)
    assert bytes(message[HEADER_BYTES:].tolist()) == rest


def test_the_header_s_bytes_are_these() -> None:
    message = torch.zeros(HEADER_BYTES, dtype=torch.uint8)
    write_header(message, finite=False, weight=1.5)
    assert bytes(message.tolist()) == b"\x01\x00\x00\x00" + struct.pack("<f", 1.5)


@settings(deadline=None, max_examples=200)
@given(elements=st.integers(0, 100_000), owners=st.integers(1, 64), granule=st.sampled_from([1, 8, 64, 4096]))
def test_a_layout_holds_all_elements_in_equal_whole_granules(elements: int, owners: int, granule: int) -> None:
    layout = Layout(elements, owners, granule)
    assert layout.shard % granule == 0 and layout.shard > 0
    assert layout.padded == layout.shard * owners >= elements
    assert layout.shard == granule or (layout.shard - granule) * owners < elements, "no granule more than needed"


@settings(deadline=None, max_examples=25)
@given(
    elements=st.integers(1, 12_000),
    owners=st.integers(1, 8),
    spec=st.sampled_from(["all|int4(block=64)", "all|bf16", "topk(density=0.05, chunk=512)|int4"]),
)
def test_a_shard_s_code_is_a_range_of_the_whole_code(elements: int, owners: int, spec: str) -> None:
    codec = Codec(spec)
    layout = Layout(elements, owners, codec.granule)
    x = torch.randn(layout.padded, generator=torch.Generator().manual_seed(elements))
    whole, size = _code(codec, x), codec.message_bytes(layout.shard)
    for owner in range(owners):
        shard = x[owner * layout.shard : (owner + 1) * layout.shard]
        assert torch.equal(_code(codec, shard), whole[owner * size : (owner + 1) * size])


def _code(codec: Codec, x: torch.Tensor) -> torch.Tensor:
    message = torch.zeros(codec.message_bytes(x.numel()), dtype=torch.uint8)
    codec.encode(x, None, message, torch.empty_like(x))
    return message


def test_residuals_swap_on_commit_and_own_ones_only_where_they_counted() -> None:
    residuals = Residuals.zeros(Layout(10, 2, 4))
    assert residuals.answer is not None and residuals.answer_next is not None
    own, own_next, answer, answer_next = residuals.own, residuals.own_next, residuals.answer, residuals.answer_next
    residuals.commit(counted=False)
    assert residuals.own is own and residuals.answer is answer_next
    residuals.commit()
    assert residuals.own is own_next and residuals.answer is answer
    assert Residuals.zeros(Layout(10, 1, 4)).answer is None


@settings(deadline=None, max_examples=200)
@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=9))
def test_factors_are_n_w_over_the_sum(weights: list[int]) -> None:
    factors = mean_factors([float(weight) for weight in weights])
    if len(set(weights)) == 1:
        assert factors == [1.0] * len(weights)
        return
    for factor, weight in zip(factors, weights, strict=True):
        assert math.isclose(factor, Fraction(len(weights) * weight, sum(weights)), rel_tol=1e-15)


def test_headers_are_judged_together() -> None:
    def heard(*headers: tuple[bool, float]) -> tuple[bool, list[float]]:
        rows = torch.zeros(len(headers), HEADER_BYTES + 3, dtype=torch.uint8)
        for row, (finite, weight) in zip(rows, headers, strict=True):
            write_header(row, finite=finite, weight=weight)
        return tuple(listen(rows))  # type: ignore[return-value]

    assert heard((True, 1.0), (True, 3.0)) == (True, [0.5, 1.5])
    assert heard((True, 1.0), (False, 3.0)) == (False, [0.5, 1.5])
    assert heard((True, 1.0), (False, 0.0)) == (True, [2.0, 0.0])
    assert heard((True, 0.0), (False, 0.0)) == (False, [1.0, 1.0])


def lanes_carry(context: Context) -> tuple[list[list[int]], list[list[int]], int]:
    lane = Lane(dist.new_group(backend="gloo"))
    ranks, rank = context.world_size, context.rank
    sent = torch.tensor([[10 * rank + to] * 5 for to in range(ranks)], dtype=torch.uint8)
    crossed, gathered = torch.zeros_like(sent), torch.zeros(ranks, 7, dtype=torch.uint8)
    lane.all_to_all(crossed, sent).wait()
    lane.all_gather(gathered, torch.full((7,), rank, dtype=torch.uint8)).wait()
    return crossed.tolist(), gathered.tolist(), lane.sent_bytes


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_a_lane_s_two_verbs_and_its_count(pool: Pool, ranks: int) -> None:
    for rank, (crossed, gathered, sent_bytes) in enumerate(pool.run(lanes_carry, ranks)):
        assert crossed == [[10 * source + rank] * 5 for source in range(ranks)]
        assert gathered == [[source] * 7 for source in range(ranks)]
        assert sent_bytes == (ranks - 1) * (5 + 7)


def test_the_clock_counts_what_threads_do_together_once() -> None:
    clock = StageClock()
    clock.add("encode", 0.0, 4.0)
    clock.add("encode", 1.0, 2.0)
    clock.add("decode", 3.0, 9.0)
    clock.add("wire", 1.0, 12.0)
    clock.add("wire", 2.0, 5.0)
    hidden, exposed = clock.split(3.5)
    assert hidden == {"encode": 3.5, "decode": 0.5, "wire": 2.5}
    assert exposed == {"encode": 0.5, "decode": 5.0, "wire": 3.0}, "each second once; wire is what nothing else covers"
    clock.reset()
    assert clock.split(0.0) == (dict.fromkeys(KINDS, 0.0),) * 2


INTERVALS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 40), st.integers(0, 15)), max_size=12)


@settings(deadline=None, max_examples=200)
@given(stages=INTERVALS, at=st.integers(0, 60))
def test_the_clock_against_counting_seconds(stages: list[tuple[str, int, int]], at: int) -> None:
    clock = StageClock()
    for kind, begin, length in stages:
        clock.add(kind, float(begin), float(begin + length))
    busy = {kind: {s for k, b, n in stages if k == kind for s in range(b, b + n)} for kind in KINDS}
    hidden, exposed = clock.split(float(at))
    assert hidden == {kind: len([s for s in busy[kind] if s < at]) for kind in KINDS}
    taken: set[int] = set()
    for kind in KINDS:
        mine = {s for s in busy[kind] if s >= at} - taken
        assert exposed[kind] == len(mine)
        taken |= mine

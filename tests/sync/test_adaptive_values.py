"""Which numbers for which bucket: the estimate against errors of fresh samples, the choice against all others."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainingkit.codec import Codec, message_bytes
from trainingkit.core.errors import ConfigError
from trainingkit.sync.auto.ladder import Rung
from trainingkit.sync.auto.looking import look
from trainingkit.sync.auto.values import (
    CANDIDATES,
    CRESTS,
    ERRORS,
    INT2,
    SPREADS,
    Judged,
    adapts,
    between,
    check_adaptive,
    choose,
    expected,
    total,
)

INT3, INT4, INT8 = (f"all|int{bits}(block=64)" for bits in (3, 4, 8))
E4M3 = "all|fp8(block=64, format=e4m3)"
VALUES = 1 << 16
BOUND, TERNARY_BOUND, ROWS_BOUND = 1.2, 1.35, 3.0
"""The estimate is within such a factor of the true error: from what other codecs left, from what `int2` left, and from
what it left of blocks whose sizes differ, which it tells least of."""


def drawn(kind: str, seed: int) -> torch.Tensor:
    """[VALUES] fp32 of one distribution."""
    torch.manual_seed(seed)
    normal, uniform = torch.randn(VALUES), torch.rand(VALUES) * 2 - 1
    kinds = {
        "even": uniform,
        "bell": normal,
        "laplace": uniform.sign() * -torch.log(torch.rand(VALUES)),
        "student, 5 degrees": torch.distributions.StudentT(5.0).sample((VALUES,)),
        "rows of many sizes": normal * torch.exp(0.8 * torch.randn(VALUES // 64)).repeat_interleave(64),
        "elements of many sizes": normal * torch.exp(0.8 * torch.randn(VALUES)),
        "heavy": normal * torch.exp(1.5 * torch.randn(VALUES)),
    }
    return kinds[kind]


KINDS = ("even", "bell", "laplace", "student, 5 degrees", "rows of many sizes", "elements of many sizes", "heavy")


def decoded(values: torch.Tensor, spec: str) -> torch.Tensor:
    codec = Codec(spec)
    message, out = torch.zeros(codec.message_bytes(len(values)), dtype=torch.uint8), torch.zeros(len(values))
    assert codec.encode(values, None, message, None)
    codec.decode(message, out)
    return out


def judged(energy: float, crest: float, elements: int) -> Judged:
    return Judged(
        energy, crest, between(crest, CRESTS, SPREADS), {codec: message_bytes(codec, elements) for codec in CANDIDATES}
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("present", CANDIDATES)
def test_the_estimate_is_near_the_error_of_fresh_values(kind: str, present: str) -> None:
    seen = look(decoded(drawn(kind, 1), present).view(-1, 256)).as_coded(present)
    guess = Judged.of(seen, VALUES, dict.fromkeys(CANDIDATES, 0))
    fresh = drawn(kind, 2)
    square = float(fresh.double().square().sum())
    bound = BOUND if present != INT2 else ROWS_BOUND if kind == "rows of many sizes" else TERNARY_BOUND
    for codec in CANDIDATES:
        true = float((fresh - decoded(fresh, codec)).double().square().sum()) / square
        told = guess.error(codec) / guess.energy
        assert true / bound < told < true * bound, f"{codec}: {told:.3g} for {true:.3g}"


def test_the_look_is_the_sums_written_down() -> None:
    blocks = drawn("laplace", 3)[: 7 * 256].view(7, 256)
    seen = look(blocks)
    exact = blocks.double()
    assert math.isclose(seen.energy, float(exact.square().sum()), rel_tol=1e-12)
    assert math.isclose(seen.peaks, 64 * float(exact.view(-1, 64).abs().amax(1).square().sum()), rel_tol=1e-12)
    assert math.isclose(seen.spread, float(exact.abs().sum(1).square().sum()) / 256, rel_tol=1e-12)
    assert seen.count == 7 * 256
    assert look(torch.zeros(0, 256)).count == 0


def test_the_number_of_threads_does_not_matter() -> None:
    blocks, threads = drawn("heavy", 4).view(-1, 256), torch.get_num_threads()
    seen = []
    for count in (1, 2):
        torch.set_num_threads(count)
        seen.append(look(blocks))
    torch.set_num_threads(threads)
    assert seen[0] == seen[1]


numbers = st.lists(st.tuples(st.floats(1e-6, 1e6), st.floats(1.0, 64.0), st.integers(1, 40)), min_size=1, max_size=9)


@settings(deadline=None, max_examples=60)
@given(numbers, st.sampled_from(CANDIDATES), st.randoms(use_true_random=False))
def test_the_budget_is_kept_and_nothing_gets_worse(rows, base, random) -> None:
    buckets = [judged(energy, crest, 256 * blocks) for energy, crest, blocks in rows]
    before = [random.choice(CANDIDATES) for _ in buckets]
    found = choose(buckets, base, before)
    same = [base] * len(buckets)
    assert total(buckets, found) <= total(buckets, same)
    kept = before if total(buckets, before) <= total(buckets, same) else same
    assert expected(buckets, found) <= expected(buckets, kept)


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.tuples(st.floats(1e-3, 1e3), st.floats(3.0, 40.0)), min_size=2, max_size=4), st.sampled_from(CANDIDATES)
)
def test_it_is_nearly_the_best_of_all_choices(rows, base) -> None:
    """Never worse than the best one that leaves the bytes of one step up unspent, which bounds what is lost."""
    elements = 1024
    buckets = [judged(energy, crest, elements) for energy, crest in rows]
    same = [base] * len(buckets)
    found = expected(buckets, choose(buckets, base, same))
    spare = message_bytes(INT8, elements) - message_bytes(INT4, elements)
    within = total(buckets, same) - spare
    fitting = [c for c in itertools.product(CANDIDATES, repeat=len(buckets)) if total(buckets, c) <= within]
    assert found <= min((expected(buckets, c) for c in fitting), default=math.inf) / 0.97


def test_the_heavy_bucket_gets_bits_from_the_even_one() -> None:
    """The larger a bucket's gradients and the farther its peaks, the more bits it gets."""
    large, even, small = judged(4.0, 12.0, 4096), judged(1.0, 2.9, 4096), judged(0.05, 2.9, 4096)
    assert choose([large, even, small], INT3, [INT3] * 3) == [INT4, INT3, INT2]
    far, near = judged(1.0, 17.0, 4096), judged(0.5, 2.9, 4096)
    assert choose([far, near], INT3, [INT3] * 2) == [INT4, INT2]
    assert choose([judged(1.0, 2.9, 4096), near], INT3, [INT3] * 2) == [INT3, INT3]


def test_far_larger_gradients_get_eight_bits() -> None:
    buckets = [judged(100.0, 7.0, 4096), judged(1.0, 7.0, 4096), judged(0.01, 7.0, 4096)]
    assert choose(buckets, INT4, [INT4] * 3) == [INT8, INT2, INT2]


def test_buckets_that_are_alike_have_nothing_to_trade() -> None:
    """From four bits the next step up is twice the bytes, so crests alone never pay for it."""
    for base in (INT3, INT4, INT8):
        buckets = [judged(1.0, crest, 4096) for crest in (2.9, 4.7, 7.0, 12.0, 24.0)]
        assert choose(buckets, base, [base] * 5) == [base] * 5


def test_a_change_must_be_worth_it() -> None:
    alike = [judged(1.0, 7.0, 4096), judged(1.01, 7.1, 4096)]
    assert choose(alike, INT4, [INT4, INT4]) == [INT4, INT4]
    assert choose(alike, INT4, [INT8, INT8]) == [INT4, INT4], "what does not fit cannot stay"


def test_small_floats_win_only_where_errors_are_tiny() -> None:
    """In eight bits: a block of 64 has a crest of at most 64, where int8's error is that of a level in 127."""
    assert all(between(c, CRESTS, ERRORS[INT8]) < between(c, CRESTS, ERRORS[E4M3]) for c in (2.9, 12.0, 32.3, 42.7))
    assert choose([judged(1.0, 60.0, 4096)], INT8, [INT8]) == [E4M3]
    assert choose([judged(1.0, 12.0, 4096)], INT8, [INT8]) == [INT8]


def test_which_rungs_adapt() -> None:
    topk = "topk(density=0.05, chunk=4096)|int4(block=64)"
    assert all(adapts(Rung(codec, normalise=True)) for codec in CANDIDATES)
    assert not any(adapts(Rung(codec)) for codec in (*CANDIDATES, "none"))
    assert not any(adapts(Rung(codec, normalise=True)) for codec in ("all|bf16", topk))
    assert check_adaptive("all|int4", normalise=True) == INT4


@pytest.mark.parametrize("codec", ["topk(0.05)|int4", "all|bf16", "all|int4(block=128)"])
def test_other_codecs_are_refused(codec: str) -> None:
    with pytest.raises(ConfigError, match="Buckets cannot choose their own numbers beside this codec") as caught:
        check_adaptive(codec, normalise=True)
    assert "sync.adaptive" in str(caught.value)
    assert INT4 in str(caught.value)


def test_gradients_units_are_refused() -> None:
    with pytest.raises(ConfigError, match="cannot weigh their errors") as caught:
        check_adaptive("all|int3", normalise=False)
    assert "sync.normalise = true" in str(caught.value)

"""Sparse and low-rank coders of the frontier bench: exactly k are sent, sizes equal those of bits really packed."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainingkit.bench.frontier.coders import (
    FOUR,
    SIGN,
    TERNARY,
    AcpSGD,
    Bf16,
    Centroids,
    FewLevels,
    Fp32,
    Integers,
    Key,
    PackageForm,
    PowerSGD,
    RandomK,
    TopK,
    TwoSided,
    index_bits,
)
from trainingkit.bench.frontier.coders.indices import elias_fano_bits, plain_bits
from trainingkit.bench.frontier.coders.selections import kept, largest
from trainingkit.codec import message_bytes

KEY = Key("weight", 0, "workers")


def randoms(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def elias_fano(indices: list[int], chunk: int, low: int) -> str:
    """The bits, as text: low parts, then for each value of the high part a 0 after its indices' 1s."""
    lows = "".join(format(index, "b").zfill(low)[-low:] if low else "" for index in indices)
    highs = "0".join("1" * sum(index >> low == high for index in indices) for high in range(((chunk - 1) >> low) + 1))
    return lows + highs


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_elias_fano_bits_are_those_of_a_packed_message_that_reads_back(data):
    chunk = data.draw(st.integers(1, 300))
    chosen = sorted(data.draw(st.sets(st.integers(0, chunk - 1), min_size=1)))
    sizes = {low: len(elias_fano(chosen, chunk, low)) for low in range((chunk - 1).bit_length() + 1)}
    low = min(sizes, key=lambda low: sizes[low])
    assert sizes[low] == elias_fano_bits(len(chosen), chunk)
    text = elias_fano(chosen, chunk, low)
    highs = [high for high, ones in enumerate(text[low * len(chosen) :].split("0")) for _ in ones]
    lows = [int(text[place * low : (place + 1) * low] or "0", 2) for place in range(len(chosen))]
    assert [(high << low) + rest for high, rest in zip(highs, lows, strict=True)] == chosen


@pytest.mark.parametrize(
    ("keep", "chunk", "bits"),
    [
        (64, 4096, 511),
        (1, 256, 8),
        (4, 256, 28),
        (128, 256, 256),
        (256, 256, 0),
        (16, 64, 49),
        (1024, 4096, 4095),
        (2, 4, 3),
    ],
)
def test_the_smallest_index_code_is_taken(keep, chunk, bits):
    assert index_bits(keep, chunk) == bits
    assert bits >= math.log2(math.comb(chunk, keep)), "no code is below the number of choices"
    assert bits <= min(chunk, plain_bits(keep, chunk))


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_exactly_k_of_the_largest_are_chosen_equals_by_lowest_index(data):
    length = data.draw(st.integers(1, 40))
    keep = data.draw(st.integers(1, length))
    size = torch.tensor(data.draw(st.lists(st.integers(0, 4), min_size=length, max_size=length))).float()
    chosen = largest(size.expand(2, 3, length).contiguous(), keep)
    order = sorted(range(length), key=lambda i: (-float(size[i]), i))[:keep]
    assert chosen[1, 2].nonzero().squeeze(1).tolist() == sorted(order)
    assert torch.equal(chosen[0, 0], chosen[1, 2])


@pytest.mark.parametrize("n", [1, 100, 4096, 9000])
def test_topk_is_torchs_in_each_chunk(n):
    y = randoms(2, n)
    said = TopK(0.05, Fp32()).said(y, KEY)
    for start in range(0, n, 4096):
        part = y[:, start : start + 4096]
        values, places = part.abs().topk(kept(0.05, part.shape[1]), dim=1)
        expected = torch.zeros_like(part).scatter_(1, places, part.gather(1, places))
        assert torch.equal(said[:, start : start + 4096], expected)
        assert bool((values > 0).all())


def test_topk_is_the_packages():
    y = randoms(2, 5 * 4096 + 100)
    package = PackageForm("topk(density=0.05, chunk=4096)|fp32|bits").said(y, KEY)
    assert torch.equal(TopK(0.05, Fp32()).said(y, KEY), package)


def test_groups_are_sent_whole_by_energy():
    y = randoms(1, 4096)
    said = TopK(0.125, Fp32(), 4096, 16).said(y, KEY)
    groups, sent = y.view(256, 16), said.view(256, 16)
    best = groups.square().sum(1).topk(32).indices
    assert torch.equal(sent[best], groups[best])
    assert int((sent != 0).sum()) == 32 * 16
    assert TopK(0.125, Fp32(), 4096, 16).bits(4096) == 32 * 32 * 16 + index_bits(32, 256)


def test_random_places_are_the_same_for_all_and_change_with_the_step():
    y = randoms(3, 1000)
    form = RandomK(0.1, Fp32())
    said, owner = form.said(y, KEY), form.said(y, Key("weight", 0, "owner"))
    later = form.said(y, Key("weight", 1, "workers"))
    assert ((said != 0).sum(1) == 100).all()
    assert torch.equal(said, owner)
    assert torch.equal(said[0] != 0, said[2] != 0)
    assert not torch.equal(said != 0, later != 0)
    assert form.bits(1000) == 3200


def test_the_smallest_published_payload_is_beaten():
    """64 of 4096 in two bits: 511 bits of indices, 128 of values, a table of four means for the whole message."""
    form = TopK(1 / 64, Centroids())
    assert form.bits(4096 * 64) == 64 * (511 + 128) + 128
    assert form.bits(4096 * 64) / (4096 * 64) < 0.16


@pytest.mark.parametrize(
    ("form", "n", "bits"),
    [
        (Integers(4), 4096, 4096 * 4 + 64 * 16),
        (Integers(3, 32), 70, 70 * 3 + 3 * 16),
        (FewLevels(SIGN, 256), 512, 512 + 2 * 16),
        (FewLevels(TERNARY, 256), 2560, 10 * (52 * 8 + 16)),
        (FewLevels(TERNARY, 256), 259, 52 * 8 + 16 + 8 + 16),
        (FewLevels(SIGN, 256), 265, 32 * 8 + 16 + 2 * 8 + 16),
        (FewLevels(FOUR, 64), 65, 16 * 8 + 16 + 8 + 16),
        (TopK(0.05, Integers(4)), 8192, 410 * 4 + 7 * 16 + 2 * index_bits(205, 4096)),
    ],
)
def test_bits_by_hand(form, n, bits):
    assert form.bits(n) == pytest.approx(bits, rel=1e-12)


def test_the_packages_bits_are_its_bytes():
    form = PackageForm("all|int4(block=64)")
    assert form.bits(6400) == Integers(4).bits(6400) == 8 * message_bytes("all|int4(block=64)", 6400)
    said = form.said(randoms(2, 6400), KEY)
    assert torch.unique(said[0, :64]).numel() <= 15


def test_the_package_says_when_values_are_not_finite():
    said = PackageForm("all|int4(block=64)").said(torch.tensor([[1.0, torch.inf], [1.0, 2.0]]), KEY)
    assert said[0].isnan().all()
    assert said[1].isfinite().all()


def test_powersgd_finds_a_matrix_of_its_rank():
    """With warm start it is a power iteration: rank 2 is said exactly, a full matrix by its best part."""
    exact = randoms(40, 2, seed=1) @ randoms(2, 30, seed=2)
    agreed = PowerSGD(2).agree([exact, exact], "weight", 0)
    torch.testing.assert_close(agreed.mean, exact, rtol=1e-4, atol=1e-4)
    coder, full = PowerSGD(2), randoms(40, 30, seed=3)
    left, singular, right = torch.linalg.svd(full)
    for step in range(300):
        found = coder.agree([full], "weight", step).mean
    best = left[:, :2] @ torch.diag(singular[:2]) @ right[:2]
    torch.testing.assert_close(found, best, rtol=0, atol=0.05)


def test_workers_of_powersgd_agree_on_the_part_of_the_mean():
    ys = [randoms(40, 30, seed=seed) for seed in range(3)]
    agreed = PowerSGD(2).agree(ys, "weight", 0)
    alone = PowerSGD(2).agree([torch.stack(ys).mean(0)], "weight", 0)
    torch.testing.assert_close(agreed.mean, alone.mean, rtol=1e-4, atol=1e-4)
    assert all(torch.equal(said, agreed.mean) for said in agreed.said)
    assert torch.linalg.matrix_rank(agreed.mean) == 2


def test_acp_moves_one_factor_a_step_and_halves_the_bits():
    coder, y = AcpSGD(2), randoms(40, 30)
    even, odd = (coder.agree([y, y], "weight", step).mean for step in range(2))
    assert torch.linalg.matrix_rank(even) == torch.linalg.matrix_rank(odd) == 2
    assert float((y - odd).norm()) < float((y - even).norm()) < float(y.norm())
    assert coder.bits((40, 30)) * 2 == PowerSGD(2).bits((40, 30)) == 32 * 2 * 70


def test_what_low_rank_cannot_shrink_goes_in_bf16():
    small = randoms(4, 5)
    agreed = PowerSGD(4).agree([small, small], "weight", 0)
    assert torch.equal(agreed.mean, small.bfloat16().float())
    assert PowerSGD(4).bits((4, 5)) == TwoSided(Bf16()).bits((4, 5)) == 320

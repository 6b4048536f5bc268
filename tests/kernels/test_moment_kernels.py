"""The passes over second moments: every kernel against the arithmetic as it is written down, to the last bit."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainingkit.kernels.moments import MOMENT_KERNELS, fastest
from trainingkit.kernels.reference.moment import roots_of

ABLE = [name for name in MOMENT_KERNELS.names() if MOMENT_KERNELS.get(name).missing() is None]
SHARE = 0.05


def summed(roots: list[np.float32]) -> np.float32:
    """The sum in the stated order, number by number."""
    tiles = [roots[start : start + 1024] for start in range(0, len(roots), 1024)]
    sums = []
    for tile in tiles:
        left = tile + [np.float32(0)] * (1024 - len(tile))
        while len(left) > 1:
            half = len(left) // 2
            left = [low + high for low, high in zip(left[:half], left[half:], strict=True)]
        sums.append(left[0])
    while len(sums) > 1:
        half, odd = divmod(len(sums), 2)
        folded = [low + high for low, high in zip(sums[:half], sums[half : 2 * half], strict=True)]
        if odd:
            folded[0] += sums[-1]
        sums = folded
    return sums[0]


def drawn(n: int, seed: int, spread: float) -> list[torch.Tensor]:
    """A mean, a second moment, a unit and two residuals, with sizes over many powers of two."""
    generator = torch.Generator().manual_seed(seed)
    mean, size, *rest = (torch.randn(n, generator=generator) for _ in range(5))
    return [mean * (size * spread).exp2(), (mean * size).square(), *(values.abs() + 0.1 for values in rest)]


@pytest.mark.parametrize("name", ABLE)
@settings(max_examples=12, deadline=None)
@given(n=st.sampled_from([1, 2, 63, 64, 65, 1023, 1024, 1025, 3 * 1024, 5000]), seed=st.integers(0, 10**6))
def test_follow_is_what_is_written_down(name, n, seed):
    mean, square, *_ = drawn(n, seed, 4.0)
    kept, share = square.clone(), np.float32(SHARE)
    wanted = [(m * m - v) * share + v for m, v in zip(mean.numpy(), square.numpy(), strict=True)]
    total = MOMENT_KERNELS.get(name).follow(mean, square, SHARE)
    assert mean.tolist() == [float(v) for v in wanted] and torch.equal(square, kept)
    assert total == float(summed([np.sqrt(v) for v in wanted]))


@pytest.mark.parametrize("name", ABLE)
@settings(max_examples=12, deadline=None)
@given(n=st.integers(0, 300), seed=st.integers(0, 10**6), floor=st.floats(1e-6, 4.0), both=st.booleans())
def test_settle_is_what_is_written_down(name, n, seed, floor, both):
    _, square, unit, one, other = drawn(n, seed, 4.0)
    before = [values.clone().numpy() for values in (unit, one, other)]
    following = [max(np.sqrt(v), np.float32(floor)) for v in square.numpy()]
    change = [u / f for u, f in zip(before[0], following, strict=True)]
    MOMENT_KERNELS.get(name).settle(square, floor, unit, (one, other) if both else (one,))
    assert unit.tolist() == [float(f) for f in following]
    assert one.tolist() == [float(value * c) for value, c in zip(before[1], change, strict=True)]
    told = [value * c for value, c in zip(before[2], change, strict=True)] if both else before[2]
    assert other.tolist() == [float(value) for value in told]


@settings(max_examples=8, deadline=None)
@given(n=st.integers(1, 300_000), seed=st.integers(0, 10**6), spread=st.sampled_from([0.0, 3.0, 30.0]))
def test_all_kernels_give_the_same_bits(n, seed, spread):
    found = []
    for name in ABLE:
        kernel, (mean, square, unit, one, other) = MOMENT_KERNELS.get(name), drawn(n, seed, spread)
        total = kernel.follow(mean, square, SHARE)
        kernel.settle(mean, max(total / n / 20, 1e-20), unit, (one, other))
        found.append((torch.tensor(total), mean, unit, one, other))
    for left in found[1:]:
        assert all(torch.equal(a.view(torch.int32), b.view(torch.int32)) for a, b in zip(found[0], left, strict=True))


@pytest.mark.parametrize("bad", [math.inf, math.nan, 1e30])
def test_a_square_that_fp32_cannot_hold_is_seen_in_the_sum(bad):
    for name in ABLE:
        mean = torch.ones(2000)
        mean[1500] = bad
        assert not math.isfinite(MOMENT_KERNELS.get(name).follow(mean, torch.ones(2000), 1.0))


def test_no_elements_have_no_sum():
    for name in ABLE:
        assert MOMENT_KERNELS.get(name).follow(torch.empty(0), torch.empty(0), 1.0) == 0.0


@settings(max_examples=200, deadline=None)
@given(st.floats(min_value=0, max_value=2.0**127, width=32))
def test_roots_are_the_nearest(value):
    """No other fp32 number's square is as near: the middle to each neighbour is on the other side of the root."""
    root = np.float32(roots_of(torch.tensor([value])).item())
    if value == 0:
        assert root == 0
        return
    below, above = (np.nextafter(root, np.float32(end)) for end in (0, np.inf))
    low, high = ((Fraction(float(root)) + Fraction(float(side))) / 2 for side in (below, above))
    assert low**2 < Fraction(value) < high**2


def test_the_fastest_that_can_run_is_taken(monkeypatch):
    assert fastest().speed == max(MOMENT_KERNELS.get(name).speed for name in ABLE)
    fastest.cache_clear()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    try:
        assert fastest() is MOMENT_KERNELS.get("torch")
    finally:
        fastest.cache_clear()

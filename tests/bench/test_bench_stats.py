"""The intervals hold what they promise, and say nothing where they cannot."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainingkit.bench.stats import FEWEST, median_interval

FINITE = st.floats(0.01, 100, allow_nan=False)


@given(st.lists(FINITE, min_size=FEWEST, max_size=40))
@settings(deadline=None, max_examples=50)
def test_the_bounds_enclose_the_median_and_stay_within_the_samples(samples):
    found = median_interval(samples)
    assert found.value == pytest.approx(float(np.median(samples)))
    assert min(samples) <= found.low <= found.value <= found.high <= max(samples)


@given(st.lists(FINITE, max_size=FEWEST - 1))
def test_too_few_samples_give_no_bounds(samples):
    found = median_interval(samples)
    assert math.isnan(found.low)
    assert math.isnan(found.high)
    assert not found.within(-math.inf, math.inf)


@pytest.mark.parametrize("n", [12, 30])
@pytest.mark.parametrize("shape", ["normal", "spikes"])
def test_nine_of_ten_intervals_hold_the_true_median(n, shape):
    draw = np.random.default_rng(7)
    hits, tries = 0, 300
    for number in range(tries):
        samples = draw.lognormal(0.0, 0.1, n)
        if shape == "spikes":
            samples = np.where(draw.random(n) < 0.1, samples * 10, samples)
        truth = 1.0 if shape == "normal" else math.exp(0.1 * 0.1397)
        found = median_interval(list(samples), seed=number)
        hits += found.low <= truth <= found.high
    assert 0.84 <= hits / tries <= 0.97


def test_the_same_samples_give_the_same_bounds():
    samples = [1.0, 1.1, 0.9, 1.05, 0.97, 1.2]
    assert median_interval(samples) == median_interval(samples)

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainingkit.core.errors import DataError
from trainingkit.data import SampleOrder

SEEDS = st.integers(min_value=-(2**70), max_value=2**70)


@pytest.mark.parametrize("epoch", [0, 1, 1000])
def test_every_small_length_is_a_bijection(epoch: int) -> None:
    for n in range(1, 301):
        seen = SampleOrder(n, seed=7).indices(epoch * n, n)
        assert np.array_equal(np.sort(seen), np.arange(n)), n


@settings(deadline=None, max_examples=15)
@given(n=st.integers(301, 200_000), seed=SEEDS, epoch=st.integers(0, 10**6))
def test_large_lengths_are_bijections(n: int, seed: int, epoch: int) -> None:
    seen = SampleOrder(n, seed).indices(epoch * n, n)
    assert np.array_equal(np.bincount(seen, minlength=n), np.ones(n))


@settings(deadline=None, max_examples=40)
@given(n=st.integers(1, 2**61), seed=SEEDS, start=st.integers(0, 2**62))
def test_huge_lengths_stay_in_range_and_do_not_repeat_within_an_epoch(n: int, seed: int, start: int) -> None:
    order = SampleOrder(n, seed)
    seen = order.indices(start, 100)
    epochs = np.arange(start, start + 100) // n
    assert seen.min() >= 0 and seen.max() < n
    assert len(set(zip(epochs.tolist(), seen.tolist(), strict=True))) == 100


@settings(deadline=None, max_examples=40)
@given(n=st.integers(1, 500), seed=SEEDS, start=st.integers(0, 5000))
def test_any_stretch_is_the_items_one_by_one(n: int, seed: int, start: int) -> None:
    order = SampleOrder(n, seed)
    assert [(j // n, int(i)) for j, i in enumerate(order.indices(start, 20), start)] == [
        order.at(j) for j in range(start, start + 20)
    ]


def test_epochs_and_seeds_differ_and_repeat_exactly() -> None:
    n = 1000
    orders = [SampleOrder(n, seed).indices(epoch * n, n) for seed in range(5) for epoch in range(5)]
    for i, one in enumerate(orders):
        for other in orders[:i]:
            assert np.mean(one == other) < 0.02
    assert np.array_equal(orders[7], SampleOrder(n, 1).indices(2 * n, n))


def test_places_are_spread_evenly() -> None:
    n, rounds = 64, 4000
    first = np.concatenate([SampleOrder(n, seed).indices(5 * n, 1) for seed in range(rounds)])
    counts = np.bincount(first, minlength=n)
    chi_square = float(((counts - rounds / n) ** 2 / (rounds / n)).sum())
    assert chi_square < 120  # 63 degrees of freedom: the 99.999th percentile


@settings(deadline=None, max_examples=30)
@given(n=st.integers(1, 200), world_size=st.integers(1, 5), batch_size=st.integers(1, 7), seed=SEEDS)
def test_each_epoch_sees_each_index_once_however_it_is_sliced(
    n: int, world_size: int, batch_size: int, seed: int
) -> None:
    order = SampleOrder(n, seed)
    stride = world_size * batch_size
    taken: list[int] = []
    for start in range(0, 3 * n + stride, stride):
        for rank in range(world_size):
            taken += order.indices(start + rank * batch_size, batch_size).tolist()
    for epoch in range(3):
        assert sorted(taken[epoch * n : (epoch + 1) * n]) == list(range(n))


def test_nothing_to_order_is_refused() -> None:
    with pytest.raises(DataError, match="nothing to put in order") as caught:
        SampleOrder(0, 1)
    assert caught.value.found == "0 samples"

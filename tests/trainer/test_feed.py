"""A feed continues at the next batch, whatever kind of loader it walks."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_runs import LOADERS, digest
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset

from trainingkit.trainer.feed import Feed
from trainingkit.trainer.rng import random_state, seed_all, set_random_state


def taken(feed: Feed, count: int, *, noise: bool) -> list[str]:
    """Hashes of the next batches; with `noise` the loop draws random numbers between them, as dropout does."""
    found = []
    stream = iter(feed)
    for _ in range(count):
        found.append(digest(next(stream)))
        if noise:
            torch.rand(3)
    return found


@pytest.mark.parametrize("kind", sorted(LOADERS))
@settings(deadline=None, max_examples=25)
@given(before=st.integers(1, 30), after=st.integers(1, 20), noise=st.booleans())
def test_continues_where_it_stood(kind: str, before: int, after: int, noise: bool) -> None:
    def fresh() -> Feed:
        return Feed(LOADERS[kind](0, 1), passes=None)

    seed_all(3)
    whole = taken(fresh(), before + after, noise=noise)
    seed_all(3)
    feed = fresh()
    assert taken(feed, before, noise=noise) == whole[:before]
    state, generators = json.loads(json.dumps(feed.state_dict())), random_state()
    seed_all(99)
    resumed = fresh()
    resumed.load_state_dict(state)
    set_random_state(generators)
    assert taken(resumed, after, noise=noise) == whole[before:]


def test_a_distributed_sampler_is_told_the_pass() -> None:
    def loader() -> DataLoader[Any]:
        data = list(range(10))
        return DataLoader(data, batch_size=5, sampler=DistributedSampler(data, 1, 0, shuffle=True))  # type: ignore[arg-type]

    whole = taken(Feed(loader(), passes=3), 6, noise=False)
    assert len(set(whole)) == 6, "each pass has its own order"
    feed = Feed(loader(), passes=3)
    assert taken(feed, 3, noise=False) == whole[:3]
    resumed = Feed(loader(), passes=3)
    resumed.load_state_dict(feed.state_dict())
    assert taken(resumed, 3, noise=False) == whole[3:]


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        yield from torch.arange(12).float()


def test_an_iterable_dataset() -> None:
    def loader() -> Iterable[Any]:
        return DataLoader(Stream(), batch_size=2)

    whole = taken(Feed(loader(), passes=1), 6, noise=False)
    feed = Feed(loader(), passes=1)
    taken(feed, 4, noise=False)
    resumed = Feed(loader(), passes=1)
    resumed.load_state_dict(feed.state_dict())
    assert taken(resumed, 2, noise=False) == whole[4:]


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 2**63 - 1), draws=st.integers(0, 700))
def test_generators_round_trip_through_json(seed: int, draws: int) -> None:
    seed_all(seed)
    for _ in range(draws):
        random.gauss(0, 1), np.random.normal(), torch.randn(())
    state = json.loads(json.dumps(random_state()))
    expected = [random.gauss(0, 1), np.random.normal(), float(torch.randn(())), random.random()]
    seed_all(seed // 2 + 1)
    set_random_state(state)
    assert [random.gauss(0, 1), np.random.normal(), float(torch.randn(())), random.random()] == expected

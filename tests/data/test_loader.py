import gc
import json
import threading
import time
import weakref
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainingkit.core.errors import ConfigError, DataError
from trainingkit.data import SampleOrder
from trainingkit.data.loader import Loader

torch.set_num_threads(1)


class Numbers:
    """Sample i is {"x": i}; `broken` raises; a gate can hold readers back."""

    def __init__(self, n: int, broken: int | None = None, gate: threading.Event | None = None) -> None:
        self.n, self.broken, self.gate = n, broken, gate
        self.read = 0

    def __len__(self) -> int:
        return self.n

    def sample(self, index: int) -> dict[str, np.ndarray]:
        if self.gate is not None:
            assert self.gate.wait(10)
        if index == self.broken:
            raise ValueError("a bad sector")
        self.read += 1
        return {"x": np.array(index)}


def take(loader: Loader, count: int) -> list[list[int]]:
    return [next(loader)["x"].tolist() for _ in range(count)]


def until(condition, seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        threading.Event().wait(0.002)
    return condition()


def readers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("data-")]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    if readers():
        gc.collect()
    assert until(lambda: not readers())


@settings(deadline=None, max_examples=40)
@given(
    n=st.integers(1, 60),
    batch_size=st.integers(1, 5),
    world_size=st.integers(1, 4),
    ahead=st.tuples(st.integers(0, 3), st.integers(1, 5)),
    seed=st.integers(-5, 2**64),
)
def test_the_union_over_ranks_is_the_order_whatever_the_threads(n, batch_size, world_size, ahead, seed) -> None:
    threads, depth = ahead
    ranks = [
        Loader(Numbers(n), batch_size, seed, rank, world_size, threads=threads, depth=depth)
        for rank in range(world_size)
    ]
    union = [index for batches in zip(*(take(each, 6) for each in ranks), strict=True) for b in batches for index in b]
    for each in ranks:
        each.close()
    assert union == SampleOrder(n, seed).indices(0, 6 * batch_size * world_size).tolist()


@settings(deadline=None, max_examples=30)
@given(before=st.integers(0, 9), threads=st.integers(0, 3), depth=st.integers(1, 6), n=st.integers(1, 50))
def test_resuming_anywhere_is_not_noticed(before: int, threads: int, depth: int, n: int) -> None:
    whole = Loader(Numbers(n), 3, seed=4, threads=0)
    expected = take(whole, before + 8)
    first = Loader(Numbers(n), 3, seed=4, threads=threads, depth=depth)
    assert take(first, before) == expected[:before]
    state = json.loads(json.dumps(first.state_dict()))
    first.close()
    second = Loader(Numbers(n), 3, seed=4, threads=threads, depth=depth)
    second.load_state_dict(state)
    assert take(second, 8) == expected[before:]
    second.close()


def test_another_world_size_and_batch_size_continue_the_same_stream() -> None:
    loaders = [Loader(Numbers(50), 2, 9, rank, 4, threads=2) for rank in range(4)]
    for each in loaders:
        take(each, 5)
    assert len({json.dumps(each.state_dict()) for each in loaders}) == 1
    narrower = [Loader(Numbers(50), 5, 9, rank, 2) for rank in range(2)]
    for each in narrower:
        each.load_state_dict(loaders[0].state_dict())
    got = [index for pair in zip(*(take(each, 7) for each in narrower), strict=True) for b in pair for index in b]
    assert got == SampleOrder(50, 9).indices(40, 70).tolist()
    for each in (*loaders, *narrower):
        each.close()


def test_loading_a_state_in_mid_flight_drops_what_was_read_ahead() -> None:
    loader = Loader(Numbers(40), 4, seed=1, depth=6)
    start = loader.state_dict()
    first = take(loader, 3)
    loader.load_state_dict(start)
    assert take(loader, 3) == first
    loader.close()


def test_closing_keeps_the_position() -> None:
    loader = Loader(Numbers(40), 4, seed=1)
    expected = take(Loader(Numbers(40), 4, seed=1, threads=0), 4)
    assert take(loader, 2) == expected[:2]
    loader.close()
    assert take(loader, 2) == expected[2:]
    loader.close()


def test_without_shuffle_the_source_is_read_in_turn() -> None:
    assert take(Loader(Numbers(5), 3, seed=1, threads=0, shuffle=False), 4) == [
        [0, 1, 2],
        [3, 4, 0],
        [1, 2, 3],
        [4, 0, 1],
    ]


def test_no_more_than_depth_batches_are_read_ahead() -> None:
    source = Numbers(1000)
    loader = Loader(source, 2, seed=1, threads=3, depth=3)
    next(loader)
    assert until(lambda: source.read == 8)
    assert not until(lambda: source.read > 8, seconds=0.05)
    loader.close()


def test_an_error_is_raised_at_its_own_batch_and_the_position_stays() -> None:
    order = SampleOrder(40, 1).indices(0, 40).tolist()
    for threads in (0, 2):
        loader = Loader(Numbers(40, broken=order[9]), 2, seed=1, threads=threads, depth=8)
        assert take(loader, 4) == [order[i : i + 2] for i in range(0, 8, 2)]
        for _ in range(2):
            with pytest.raises(DataError, match="bad sector") as caught:
                next(loader)
            assert isinstance(caught.value.__cause__, ValueError)
            assert f"Numbers.sample({order[9]})" in str(caught.value)
            assert None not in (caught.value.field, caught.value.expected, caught.value.next_step)
        assert loader.state_dict()["samples"] == 8
        loader.close()


def test_waiting_is_measured() -> None:
    gate = threading.Event()
    loader = Loader(Numbers(40, gate=gate), 2, seed=1)
    timer = threading.Timer(0.4, gate.set)
    timer.start()
    next(loader)
    assert loader.waited_s > 0.3
    assert until(lambda: loader._ahead is not None and len(loader._ahead._shared.ready) == 4)
    next(loader)
    assert loader.waited_s < 0.3
    loader.close()
    timer.join()


def test_a_forgotten_loader_is_collected_and_its_threads_end() -> None:
    loader = Loader(Numbers(40), 2, seed=1)
    next(loader)
    assert loader._ahead is not None
    threads, gone = loader._ahead.threads, weakref.ref(loader)
    assert all(thread.is_alive() and thread.daemon for thread in threads)
    del loader
    gc.collect()
    assert gone() is None
    assert until(lambda: not any(thread.is_alive() for thread in threads))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"length": 41}, "loader.length"),
        ({"seed": 2}, "loader.seed"),
        ({"shuffle": False}, "loader.shuffle"),
        ({"samples": -1}, "loader.samples"),
        ({"samples": "12"}, "loader.samples"),
    ],
)
def test_a_state_of_other_data_is_refused(change: dict, field: str) -> None:
    loader = Loader(Numbers(40), 2, seed=1)
    with pytest.raises(DataError, match="other data or another order") as caught:
        loader.load_state_dict(loader.state_dict() | change)
    assert caught.value.field == field
    assert caught.value.found == next(iter(change.values()))
    assert caught.value.next_step


@pytest.mark.parametrize(
    "numbers", [{"batch_size": 0}, {"depth": 0}, {"threads": -1}, {"world_size": 0}, {"rank": 2, "world_size": 2}]
)
def test_impossible_numbers_are_refused(numbers: dict) -> None:
    with pytest.raises(ConfigError) as caught:
        Loader(**{"source": Numbers(4), "batch_size": 1, "seed": 0} | numbers)
    assert caught.value.field == next(iter(numbers))


def test_samples_that_do_not_stack_are_explained() -> None:
    class Ragged(Numbers):
        def sample(self, index: int) -> dict[str, np.ndarray]:
            return {"x": np.zeros(index + 1, np.float32)}

    with pytest.raises(DataError, match="differ in layout") as caught:
        next(Loader(Ragged(3), 3, seed=1, threads=0))
    assert "x: float32[" in caught.value.found and "x: float32[" in str(caught.value.expected)


def test_text_values_are_explained() -> None:
    class Texts(Numbers):
        def sample(self, index: int) -> dict[str, np.ndarray]:
            return {"x": np.array("no number")}

    with pytest.raises(DataError, match="'x' cannot become a tensor"):
        next(Loader(Texts(3), 3, seed=1, threads=0))

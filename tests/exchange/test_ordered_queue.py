"""The ordered queue: order per stage, overlap between rounds, each round ended exactly once, and errors that stay."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainingkit.core.errors import StepError
from trainingkit.exchange.queue import STAGES, OrderedQueue

LIMIT_S = 20.0


class Log:
    """What happened, in order."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, int, str]] = []
        self.ended: list[tuple[int, BaseException | None]] = []

    def stage(self, stage: int, number: int) -> Callable[[], None]:
        def run() -> None:
            self.lines.append((f"stage {stage}", number, threading.current_thread().name))

        return run

    def done(self, number: int) -> Callable[[BaseException | None], None]:
        return lambda error: self.ended.append((number, error))


@pytest.fixture
def queue() -> Iterator[OrderedQueue]:
    made = OrderedQueue("test")
    yield made
    made.close()


@settings(deadline=None, max_examples=25)
@given(st.lists(st.integers(0, STAGES), max_size=20))
def test_each_stage_runs_on_its_own_thread_in_the_order_of_the_rounds(counts: list[int]) -> None:
    log, queue = Log(), OrderedQueue("test")
    for number, count in enumerate(counts):
        queue.put([log.stage(stage, number) for stage in range(count)], log.done(number))
    queue.close()
    assert log.ended == [(number, None) for number in range(len(counts))]
    for stage in range(STAGES):
        lines = [line for line in log.lines if line[0] == f"stage {stage}"]
        assert [number for _, number, _ in lines] == [n for n, count in enumerate(counts) if count > stage]
        assert {thread for *_, thread in lines} <= {f"test-{stage}"}


def test_rounds_overlap(queue: OrderedQueue) -> None:
    """Stage 1 of the first round waits for stage 0 of the third: in one thread that would never end."""
    third = threading.Event()
    ended = threading.Event()
    waited: list[bool] = []
    queue.put([lambda: None, lambda: waited.append(third.wait(LIMIT_S))], lambda error: None)
    queue.put([lambda: None], lambda error: None)
    queue.put([third.set], lambda error: ended.set())
    assert ended.wait(LIMIT_S)
    assert waited == [True]


@pytest.mark.parametrize("stage", range(STAGES))
def test_an_error_ends_its_round_and_all_later_ones(queue: OrderedQueue, stage: int) -> None:
    log = Log()
    boom = RuntimeError("boom")

    def fail() -> None:
        raise boom

    ended = threading.Event()
    queue.put([log.stage(s, 0) for s in range(STAGES)], log.done(0))
    queue.put([*(log.stage(s, 1) for s in range(stage)), fail], log.done(1))
    queue.put([log.stage(s, 2) for s in range(STAGES)], lambda error: (log.done(2)(error), ended.set()))
    assert ended.wait(LIMIT_S)
    queue.put([log.stage(0, 3)], log.done(3))
    queue.close()
    assert [number for number, _ in log.ended] == [0, 1, 2, 3]
    assert [error for _, error in log.ended[1:]] == [boom] * 3
    assert not [line for line in log.lines if line[1] == 3], "nothing is issued after an error"


def test_a_round_whose_end_fails_does_not_stop_the_threads(queue: OrderedQueue) -> None:
    log = Log()

    def bad(_error: BaseException | None) -> None:
        raise ValueError("the end")

    queue.put([], bad)
    queue.put([log.stage(0, 1)], log.done(1))
    queue.close()
    assert [(number, str(error)) for number, error in log.ended] == [(1, "the end")]


def test_close_finishes_what_is_there_ends_the_threads_and_may_be_called_twice() -> None:
    log, before = Log(), threading.active_count()
    queue = OrderedQueue("test")
    assert threading.active_count() == before + STAGES
    for number in range(50):
        queue.put([log.stage(s, number) for s in range(STAGES)], log.done(number))
    queue.close()
    queue.close()
    assert len(log.ended) == 50
    assert threading.active_count() == before
    with pytest.raises(StepError, match="exchange of this model is closed") as caught:
        queue.put([], lambda error: None)
    assert "Call `detach` instead of `close`" in str(caught.value)

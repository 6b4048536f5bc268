"""How many workers fit in memory, and how many threads each gets."""

from __future__ import annotations

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainingkit.cluster.fit import check_workers_fit, worker_bytes
from trainingkit.cluster.launch import launch
from trainingkit.cluster.threads import physical_cores, threads_per_worker, usable_cores
from trainingkit.core.errors import ConfigError


@given(st.integers(1, 500), st.integers(0, 10**10), st.integers(0, 10**13))
def test_refused_exactly_when_the_lower_bound_does_not_fit(workers: int, parameters: int, available: int) -> None:
    if workers * worker_bytes(parameters) <= available:
        check_workers_fit(workers, parameters, available_bytes=available)
        return
    with pytest.raises(ConfigError, match="do not fit in this machine's memory") as caught:
        check_workers_fit(workers, parameters, available_bytes=available)
    most = available // worker_bytes(parameters)
    assert f"{most} workers" in str(caught.value.expected)
    if most:
        check_workers_fit(most, parameters, available_bytes=available)
        assert caught.value.next_step == f"Use --workers {most}."
    else:
        assert "smaller model" in str(caught.value.next_step)


@given(st.integers(1, 1000))
def test_threads_share_the_cores(workers: int) -> None:
    threads = threads_per_worker(workers)
    assert threads >= 1
    assert threads * workers <= max(workers, physical_cores())
    assert physical_cores() <= usable_cores()
    assert threads_per_worker(workers, wanted=7) == 7


def test_a_worker_that_ends_with_a_code_is_named_and_handlers_are_put_back() -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
    handlers = [signal.getsignal(number) for number in numbers]
    ended = launch(("-c", "import os; os._exit(3 * int(os.environ['RANK']))"), workers=2, threads=1, grace_s=2)
    assert ended.crashed == {1: "exit code 3"}
    assert ended.signal is None
    assert [signal.getsignal(number) for number in numbers] == handlers

"""Work done ahead by a few threads and handed out in order."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass
class _Shared(Generic[T]):
    """What the threads and the owner share; the threads do not hold the owner, so it can be collected."""

    fetch: Callable[[int], T]
    depth: int
    to_start: int = 0
    to_deliver: int = 0
    stopped: bool = False
    ready: dict[int, T] = field(default_factory=dict)
    failed: dict[int, BaseException] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)


class Prefetcher(Generic[T]):
    """fetch(0), fetch(1), ... in order, each computed by one of `threads` threads at most `depth` items ahead.

    Args:
        fetch: called from several threads at once, once per number.
        threads: 0 computes in `take` itself, nothing ahead.
        depth: how many items may be begun and not yet taken, at least 1.

    The threads are daemons; they end on `close` and when this object is garbage-collected.
    """

    def __init__(self, fetch: Callable[[int], T], *, threads: int, depth: int) -> None:
        self._shared: _Shared[T] = _Shared(fetch, depth)
        self.threads = [
            threading.Thread(target=_work, args=(self._shared,), name=f"data-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self.threads:
            thread.start()
        weakref.finalize(self, _stop, self._shared)

    def take(self) -> T:
        """The next item. What its fetch raised is raised here, and again on every later call."""
        shared = self._shared
        if not self.threads:
            item = shared.fetch(shared.to_deliver)
            shared.to_deliver += 1
            return item
        with shared.changed:
            assert not shared.stopped, "take() after close()"
            number = shared.to_deliver
            shared.changed.wait_for(lambda: number in shared.ready or number in shared.failed)
            if number in shared.failed:
                raise shared.failed[number]
            shared.to_deliver += 1
            shared.changed.notify_all()
            return shared.ready.pop(number)

    def close(self) -> None:
        """End the threads and wait for what they are at."""
        _stop(self._shared)
        for thread in self.threads:
            thread.join()


def _stop(shared: _Shared[T]) -> None:
    with shared.changed:
        shared.stopped = True
        shared.changed.notify_all()


def _work(shared: _Shared[T]) -> None:
    while True:
        with shared.changed:
            shared.changed.wait_for(lambda: shared.stopped or shared.to_start < shared.to_deliver + shared.depth)
            if shared.stopped:
                return
            number = shared.to_start
            shared.to_start += 1
        _fetch_one(shared, number)


def _fetch_one(shared: _Shared[T], number: int) -> None:
    """Compute one item and leave it, or what it raised, for `take`."""
    try:
        item = shared.fetch(number)
    except BaseException as error:  # handed over, not swallowed: `take` raises it
        with shared.changed:
            shared.failed[number] = error
            shared.changed.notify_all()
        return
    with shared.changed:
        shared.ready[number] = item
        shared.changed.notify_all()

"""The ordered queue: rounds go in as buckets become ready, and each stage runs on a thread of its own, in that order.

Stage i of all rounds is issued by thread i only, first in, first out, so every rank issues the same collectives in the
same order on each lane, whatever the clock does; and the stages of different rounds overlap. An error stops the queue:
every round that is waiting, and every later one, gets it.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

STAGES = 3
Stage = Callable[[], None]
Done = Callable[[BaseException | None], None]


@dataclass(frozen=True)
class _Item:
    stages: Sequence[Stage]
    done: Done


class OrderedQueue:
    """Runs rounds through up to STAGES stages.

    Args:
        name: part of the threads' names.
    """

    def __init__(self, name: str) -> None:
        self._inboxes: list[queue.SimpleQueue[_Item | None]] = [queue.SimpleQueue() for _ in range(STAGES)]
        self._error: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._work, args=(stage,), name=f"{name}-{stage}", daemon=True)
            for stage in range(STAGES)
        ]
        for thread in self._threads:
            thread.start()

    def put(self, stages: Sequence[Stage], done: Done) -> None:
        """Start a round. `done` is called once, on a thread of the queue, with None or what went wrong."""
        assert len(stages) <= STAGES
        self._inboxes[0].put(_Item(stages, done))

    def close(self) -> None:
        """Finish what is in the queue and end the threads. Safe to call twice."""
        self._inboxes[0].put(None)
        for thread in self._threads:
            thread.join()

    def _work(self, stage: int) -> None:
        while True:
            item = self._inboxes[stage].get()
            last = stage == STAGES - 1
            if item is None:
                if not last:
                    self._inboxes[stage + 1].put(None)
                return
            self._run(item, stage)
            if not last:
                self._inboxes[stage + 1].put(item)
            else:
                item.done(self._error)

    def _run(self, item: _Item, stage: int) -> None:
        if self._error is not None or stage >= len(item.stages):
            return
        try:
            item.stages[stage]()
        except BaseException as error:
            self._error = error

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

from trainingkit.core.errors import StepError
from trainingkit.core.logging import LOG

STAGES = 3
"""Of the flat exchanges; one on islands has more."""
Stage = Callable[[], None]
Done = Callable[[BaseException | None], None]


@dataclass(frozen=True)
class _Item:
    stages: Sequence[Stage]
    done: Done


class OrderedQueue:
    """Runs rounds through their stages.

    Args:
        name: part of the threads' names.
        stages: the most that a round may have.
    """

    def __init__(self, name: str, *, stages: int = STAGES) -> None:
        self._inboxes: list[queue.SimpleQueue[_Item | None]] = [queue.SimpleQueue() for _ in range(stages)]
        self._error: BaseException | None = None
        self._closed = False
        self._threads = [
            threading.Thread(target=self._work, args=(stage,), name=f"{name}-{stage}", daemon=True)
            for stage in range(stages)
        ]
        for thread in self._threads:
            thread.start()

    def put(self, stages: Sequence[Stage], done: Done) -> None:
        """Start a round. `done` is called once, on a thread of the queue, with None or what went wrong.

        Raises:
            StepError: the queue is closed.
        """
        assert len(stages) <= len(self._inboxes)
        if self._closed:
            raise StepError(
                "The exchange of this model is closed.",
                found="a backward after `close`",
                expected="no further training with this wrapper",
                next_step="Call `detach` instead of `close` to go on with plain DDP, or wrap the model anew.",
            )
        self._inboxes[0].put(_Item(stages, done))

    def close(self) -> None:
        """Finish what is in the queue and end the threads. Safe to call twice."""
        self._closed = True
        self._inboxes[0].put(None)
        for thread in self._threads:
            thread.join()

    def _work(self, stage: int) -> None:
        last = stage == len(self._inboxes) - 1
        while True:
            item = self._inboxes[stage].get()
            if item is not None:
                self._guarded(item.stages[stage : stage + 1])
            if not last:
                self._inboxes[stage + 1].put(item)
            elif item is not None:
                self._finish(item)
            if item is None:
                return

    def _guarded(self, stages: Sequence[Stage]) -> None:
        for stage in stages:
            if self._error is None:
                try:
                    stage()
                except BaseException as error:
                    self._error = error

    def _finish(self, item: _Item) -> None:
        try:
            item.done(self._error)
        except BaseException as error:
            LOG.exception("the end of a round failed")
            self._error = self._error or error

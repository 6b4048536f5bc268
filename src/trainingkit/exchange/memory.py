"""Lanes within one process: the rounds of many ranks, driven one stage after the other. For simulation and tests.

Every rank runs stage i before any runs stage i + 1. What a stage has sent is copied when the receiver waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from trainingkit.cluster.islands import Islands
from trainingkit.exchange.lane import Lane
from trainingkit.exchange.registry import EXCHANGES, Round
from trainingkit.exchange.work import Waitable

Pick = Callable[[torch.Tensor], torch.Tensor]
"""Of what a rank sent, what is for the receiver."""


class MemoryGroup:
    """The ranks of one lane, and what they have sent and not yet all received."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self._calls: dict[int, dict[int, torch.Tensor]] = {}
        self._heard: dict[int, int] = {}

    def post(self, call: int, rank: int, sent: torch.Tensor) -> None:
        """A rank's contribution to a collective."""
        self._calls.setdefault(call, {})[rank] = sent

    def deliver(self, call: int, received: torch.Tensor, pick: Pick) -> None:
        """Copy what every rank sent into the rows of `received`."""
        posted = self._calls[call]
        assert len(posted) == self.ranks, "a rank waits before all ranks have sent"
        for rank, row in enumerate(received.unbind()):
            row.copy_(pick(posted[rank]))
        self._heard[call] = self._heard.get(call, 0) + 1
        if self._heard[call] == self.ranks:
            del self._calls[call], self._heard[call]


class MemoryLane(Lane):
    """A lane whose other ranks are in this process."""

    def __init__(self, group: MemoryGroup, rank: int) -> None:
        self.rank = rank
        self.world_size = group.ranks
        self.sent_bytes = 0
        self._memory = group
        self._calls = 0

    def all_to_all(self, received: torch.Tensor, sent: torch.Tensor) -> Waitable:
        """As a lane's."""
        self.sent_bytes += sent.numel() // self.world_size * (self.world_size - 1)
        return self._start(received, sent, lambda rows: rows[self.rank])

    def all_gather(self, received: torch.Tensor, sent: torch.Tensor) -> Waitable:
        """As a lane's."""
        self.sent_bytes += sent.numel() * (self.world_size - 1)
        return self._start(received, sent, lambda row: row)

    def _start(self, received: torch.Tensor, sent: torch.Tensor, pick: Pick) -> Waitable:
        call, self._calls = self._calls, self._calls + 1
        self._memory.post(call, self.rank, sent)
        return _Delivery(lambda: self._memory.deliver(call, received, pick))


class _Delivery:
    def __init__(self, deliver: Callable[[], None]) -> None:
        self._deliver = deliver

    def wait(self) -> object:
        return self._deliver()


def memory_lanes(exchange: str, islands: Islands) -> list[list[Lane]]:
    """The lanes of every rank, in rank order."""
    lanes: list[list[Lane]] = [[] for _ in range(islands.ranks)]
    for grouping in EXCHANGES.get(exchange).groups(islands):
        for ranks in grouping:
            group = MemoryGroup(len(ranks))
            for place, rank in enumerate(ranks):
                lanes[rank].append(MemoryLane(group, place))
    return lanes


def drive(rounds: Sequence[Round]) -> None:
    """One step of all ranks' rounds."""
    stages: list[Sequence[Any]] = [each.stages for each in rounds]
    for turn in zip(*stages, strict=True):
        for stage in turn:
            stage()

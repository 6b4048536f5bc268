"""Turns of exchanges on a lab's hosts: flat, flat again, hierarchical, each with lanes and residuals of its own.

All hosts of a lab share one kernel, hence one clock: a turn begins at an agreed moment and lasts until the last rank
has all means.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from queue import SimpleQueue
from typing import Any

import torch
import torch.distributed as dist

from trainingkit.bench.exchange.footprint import Gradients, build, commit, layouts
from trainingkit.bench.exchange.spec import FLAT, HIERARCHICAL, TWIN, Task
from trainingkit.bench.paired import Plan, measure
from trainingkit.cluster.island_probe import probe_islands
from trainingkit.cluster.islands import Islands
from trainingkit.codec import Codec
from trainingkit.exchange import EXCHANGES
from trainingkit.exchange.lane import Lane
from trainingkit.exchange.queue import OrderedQueue

LEAD_S = 0.05


class Contender:
    """One exchange in this rank."""

    def __init__(self, exchange: str, islands: Islands, task: Task, group: dist.ProcessGroup) -> None:
        self._group = group
        codec = Codec(task.codec)
        self._lanes = _lanes(exchange, islands, dist.get_rank(group))
        cut = layouts(exchange, self._lanes, codec, task.buckets)
        self._gradients = Gradients(task.buckets, [each.padded for each in cut], seed=dist.get_rank(group))
        self._rounds = build(exchange, self._lanes, codec, cut, self._gradients)
        self._queue = OrderedQueue(exchange, stages=len(self._lanes) + 1)

    def turn(self) -> float:
        """Exchange all buckets once; seconds until the last rank was done, the same on all ranks."""
        self._gradients.fill()
        begin_s = _most(self._group, time.monotonic() + LEAD_S)
        time.sleep(max(0.0, begin_s - time.monotonic()))
        ended: SimpleQueue[BaseException | None] = SimpleQueue()
        for each in self._rounds:
            self._queue.put(each.stages, ended.put)
        for _ in self._rounds:
            error = ended.get()
            if error is not None:
                raise error
        seconds = _most(self._group, time.monotonic()) - begin_s
        commit(self._rounds)
        return seconds

    def sent_bytes(self) -> int:
        """Of this rank, so far."""
        return sum(lane.sent_bytes for lane in self._lanes)

    def close(self) -> None:
        """End the threads."""
        self._queue.close()


def take_turns(task: Task, group: dist.ProcessGroup) -> dict[str, Any]:
    """What the islands are found to be, and all turns. All ranks call it; JSON-able."""
    before_s = time.monotonic()
    found = probe_islands(group)
    probe_s = _most(group, time.monotonic() - before_s)
    islands = Islands.of(task.islands)
    flat = Islands.flat(task.ranks)
    Codec(task.codec).warm()
    contenders = {
        FLAT: Contender(FLAT, flat, task, group),
        TWIN: Contender(FLAT, flat, task, group),
        HIERARCHICAL: Contender(HIERARCHICAL, islands, task, group),
    }
    for each in contenders.values():
        each.turn()
    warm = {name: each.sent_bytes() for name, each in contenders.items()}
    plan = Plan(FLAT, TWIN, (HIERARCHICAL,), rounds=task.rounds, budget_s=task.most_s, guest_turns=0)
    turns = measure(plan, lambda name: contenders[name].turn())
    for each in contenders.values():
        each.close()
    return {
        "turns": asdict(turns),
        "sent_bytes": warm,
        "found": [list(ranks) for ranks in found.islands.groups],
        "reason": found.reason,
        "probe_s": probe_s,
    }


def _lanes(exchange: str, islands: Islands, rank: int) -> list[Lane]:
    return [Lane(_own_group(grouping, rank)) for grouping in EXCHANGES.get(exchange).groups(islands)]


def _own_group(grouping: Sequence[Sequence[int]], rank: int) -> dist.ProcessGroup:
    made = [dist.new_group(list(ranks), backend="gloo") for ranks in grouping]
    own = next(group for group, ranks in zip(made, grouping, strict=True) if rank in ranks)
    assert isinstance(own, dist.ProcessGroup)
    return own


def _most(group: dist.ProcessGroup, value: float) -> float:
    tensor = torch.tensor([value], dtype=torch.float64)
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=group)
    return float(tensor)

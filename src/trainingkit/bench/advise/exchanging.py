"""Does what a step sends fill the link? Its collectives as they follow each other in a step, with next to nothing to
code, against the time that their bytes need by the rate of a single all-reduce.

A ring of which all ranks wait for each other, or an all-to-all whose messages meet in front of one host, leave gaps.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist

from trainingkit.bench.advise.linking import ring_bytes
from trainingkit.codec import Codec
from trainingkit.exchange.clock import StageClock
from trainingkit.exchange.lane import Lane
from trainingkit.exchange.parts import Layout, Part, Residuals, Values
from trainingkit.exchange.queue import OrderedQueue
from trainingkit.exchange.registry import EXCHANGES, Round
from trainingkit.sync.auto.forecast import Link
from trainingkit.sync.lanes import lay_lanes
from trainingkit.sync.section import NO_ISLANDS

CODEC = "all|int8(block=64)"
LONGEST_S = 4.0
"""Of what is sent at once, by the link's rate."""
ENOUGH_S = 0.5
MOST_TRIES = 5
MOST_BYTES = 64 << 20
LEAST_ELEMENTS = 1 << 10
TIMEOUT_S = 300.0


def exchange_stretch(group: dist.ProcessGroup, link: Link, *, sent_bytes: float, buckets: int) -> float:
    """How many times as long as its bytes need an exchange takes. Collective; the same on all ranks, at least 1.

    Args:
        sent_bytes: by one rank in a step; less is sent where that would last too long.
    """
    laid = lay_lanes(group, NO_ISLANDS, timeout_s=TIMEOUT_S, meter=None)
    seat = EXCHANGES.get(laid.exchange).seat(laid.lanes)
    elements = max(LEAST_ELEMENTS, int(_bounded(sent_bytes, link) * seat.shards / seat.copies / buckets))
    rounds = [_round(laid.exchange, laid.lanes, elements) for _ in range(buckets)]
    queue = OrderedQueue("stretch", stages=max(len(round_.stages) for round_ in rounds))
    before = sum(lane.sent_bytes for lane in laid.lanes)
    _run(queue, rounds)
    sent = sum(lane.sent_bytes for lane in laid.lanes) - before
    seconds = _seconds(group, lambda: _run(queue, rounds))
    queue.close()
    for lane in laid.lanes:
        dist.destroy_process_group(lane.group)
    return _stretch(seconds - seat.trips * link.latency_s, sent, link)


def ring_stretch(group: dist.ProcessGroup, link: Link, *, elements: Sequence[int]) -> float:
    """The same for all-reduces of fp32 buckets that are started one after another, as DDP does it.

    Args:
        elements: of the buckets; the first ones are taken, as many as do not last too long, two at least.
    """
    ranks = dist.get_world_size(group)
    taken, sent = list[torch.Tensor](), 0.0
    for count in elements:
        one = ring_bytes(4 * count, ranks)
        if len(taken) >= 2 and sent + one > _bounded(sent + one, link):
            break
        taken.append(torch.zeros(count))
        sent += one

    def reduce() -> None:
        works = [dist.all_reduce(values, group=group, async_op=True) for values in taken]
        for work in works:
            assert work is not None
            work.wait()

    return _stretch(_seconds(group, reduce) - link.latency_s, sent, link)


def _bounded(sent_bytes: float, link: Link) -> float:
    return min(sent_bytes, MOST_BYTES, LONGEST_S * link.bytes_per_s)


def _stretch(seconds: float, sent_bytes: float, link: Link) -> float:
    return max(1.0, seconds * link.bytes_per_s / sent_bytes)


def _seconds(group: dist.ProcessGroup, work: Callable[[], None]) -> float:
    """Median seconds of some tries, of the slowest rank each; all ranks make as many."""
    tries: list[float] = []
    while not tries or (len(tries) < MOST_TRIES and sum(tries) < ENOUGH_S):
        dist.barrier(group=group)
        begin = time.perf_counter()
        work()
        spent_s = torch.tensor([time.perf_counter() - begin], dtype=torch.float64)
        dist.all_reduce(spent_s, op=dist.ReduceOp.MAX, group=group)
        tries.append(float(spent_s))
    return statistics.median(tries)


def _round(exchange: str, lanes: Sequence[Lane], elements: int) -> Round:
    kind, codec = EXCHANGES.get(exchange), Codec(CODEC)
    seat = kind.seat(lanes)
    layout = Layout(elements, seat.shards, codec.granule, seat.owned is not None)
    part = Part(codec, layout, Values.of(torch.zeros(layout.padded)), Residuals.zeros(layout))
    return kind([part], lanes, lambda: 1.0, StageClock())


def _run(queue: OrderedQueue, rounds: Sequence[Round]) -> None:
    """Put all rounds into the queue at once, and wait for them. Raises what a round raised."""
    left = threading.Semaphore(0)
    errors: list[BaseException] = []

    def done(error: BaseException | None) -> None:
        errors.extend([error] if error is not None else [])
        left.release()

    for round_ in rounds:
        queue.put(round_.stages, done)
    for _ in rounds:
        left.acquire()
    if errors:
        raise errors[0]

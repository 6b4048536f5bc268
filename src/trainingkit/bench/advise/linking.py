"""What the link gives, and what a byte on it costs the processor: all-reduces by size, while nothing else is done.

ring(n) = 2 (N-1)/N n             bytes that leave a rank in an all-reduce of n bytes
seconds = latency + ring / rate
byte    = processor seconds of this process / bytes that left it (adding, copying, the kernel's part of sending)
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
import torch.distributed as dist

from trainingkit.cluster.probe_links import COLLECTIVE_TRIES, Collective, measure_collectives
from trainingkit.core.units import parse_seconds
from trainingkit.netlab.rates import parse_rate
from trainingkit.sync.auto.forecast import Link

TCP_SHARE = 1448 / 1514
"""Of a full Ethernet frame's bits that are payload."""
PINGS = 9


def stated_link(rate: str, delay: str) -> Link | None:
    """A link from numbers; None for "unshaped".

    Args:
        rate: such as "25mbit", of the wire.
        delay: one way.

    Raises:
        ConfigError: they cannot be read.
    """
    rate_bps = parse_rate(rate, field="--link")
    delay_s = parse_seconds(delay, field="--delay")
    return None if rate_bps is None else Link(rate_bps / 8 * TCP_SHARE, delay_s)


def measure_link(group: dist.ProcessGroup) -> tuple[Link, float]:
    """The link, and processor seconds of a byte; the same on all ranks. Collective."""
    ranks = dist.get_world_size(group)
    tiny_s = _tiny(group)
    before = time.process_time()
    collectives = measure_collectives(group)
    spent_s = time.process_time() - before
    sent = sum(COLLECTIVE_TRIES * ring_bytes(each.n_bytes, ranks) for each in collectives)
    byte_s = torch.tensor([spent_s / sent / ranks], dtype=torch.float64)
    dist.all_reduce(byte_s, group=group)
    return link_of(collectives, tiny_s, ranks), float(byte_s)


def link_of(collectives: Sequence[Collective], tiny_s: float, ranks: int) -> Link:
    """The link by the largest of some all-reduces.

    Args:
        tiny_s: seconds of an all-reduce of next to nothing.
    """
    largest = max(collectives, key=lambda each: each.n_bytes)
    return Link(ring_bytes(largest.n_bytes, ranks) / max(largest.seconds - tiny_s, largest.seconds / 2), tiny_s)


def ring_bytes(n_bytes: float, ranks: int) -> float:
    """What leaves one rank in an all-reduce."""
    return 2 * (ranks - 1) / ranks * n_bytes


def _tiny(group: dist.ProcessGroup) -> float:
    """Seconds of an all-reduce of one number: the lower quartile of some, for peers may come late, never early."""
    value = torch.zeros(1, dtype=torch.float64)
    tries = []
    for _ in range(PINGS):
        begin = time.perf_counter()
        dist.all_reduce(value, group=group)
        tries.append(time.perf_counter() - begin)
    low_s = torch.tensor([sorted(tries)[PINGS // 4]], dtype=torch.float64)
    dist.all_reduce(low_s, op=dist.ReduceOp.MAX, group=group)
    return float(low_s)

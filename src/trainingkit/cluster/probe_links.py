"""Latency and bandwidth of every pair of ranks, one pair at a time, and the rate of all-reduce by size.

Latency is half the median round trip of 8 bytes. Bandwidth is counted by the receiver over the later half of a transfer
that lasts long enough, so that neither buffers nor a token bucket's burst are in it. All other ranks wait meanwhile.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist

PINGS = 12
BLOCKS = 8
FIRST_BYTES = 256 << 10
MOST_BYTES = 64 << 20
ENOUGH_S = 0.3
LONG_TRANSFERS = 3
COLLECTIVE_BYTES = (64 << 10, 1 << 20, 4 << 20, 16 << 20)
COLLECTIVE_TRIES = 3
COLLECTIVE_LIMIT_S = 3.0


@dataclass(frozen=True)
class Effort:
    """How much is done for one pair.

    Args:
        pings: round trips, of which the first two do not count.
        first_bytes, most_bytes: the first transfer, and the longest.
        enough_s: a transfer that lasts so long is not doubled.
        transfers: how many of that length; the best one counts.
    """

    pings: int = PINGS
    first_bytes: int = FIRST_BYTES
    most_bytes: int = MOST_BYTES
    enough_s: float = ENOUGH_S
    transfers: int = LONG_TRANSFERS


THOROUGH = Effort()


@dataclass(frozen=True)
class PairLink:
    """One way from rank `source` to rank `target`."""

    source: int
    target: int
    latency_s: float
    bandwidth_bps: float


@dataclass(frozen=True)
class Collective:
    """One all-reduce of `n_bytes`: its median seconds, and n_bytes / seconds in bits."""

    n_bytes: int
    seconds: float
    rate_bps: float


def measure_links(group: dist.ProcessGroup, *, budget_s: float) -> tuple[list[PairLink], list[tuple[int, int]]]:
    """All pairs, both ways. Collective.

    Args:
        budget_s: no further pair is begun after so many seconds.

    Returns:
        What was measured (the same on all ranks), and the pairs that there was no time for.
    """
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    pairs = [(a, b) for a in range(ranks) for b in range(a + 1, ranks)]
    own: list[PairLink] = []
    left: list[tuple[int, int]] = []
    began_s = time.monotonic()
    for one, other in pairs:
        if _agree(group, time.monotonic() - began_s) > budget_s:
            left.append((one, other))
            continue
        if rank in (one, other):
            own += measure_pair(group, one, other, THOROUGH)
    return share(group, own), left


def measure_collectives(group: dist.ProcessGroup) -> list[Collective]:
    """All-reduce of fp32 by size, smallest first; sizes that would take too long are left out. Collective."""
    found: list[Collective] = []
    for n_bytes in COLLECTIVE_BYTES:
        if found and COLLECTIVE_TRIES * found[-1].seconds * n_bytes / found[-1].n_bytes > COLLECTIVE_LIMIT_S:
            break
        values = torch.ones(n_bytes // 4)
        tries = [_timed_all_reduce(group, values) for _ in range(COLLECTIVE_TRIES)]
        seconds = _agree(group, statistics.median(tries))
        found.append(Collective(n_bytes, seconds, 8 * n_bytes / seconds))
    return found


def measure_pair(group: dist.ProcessGroup, one: int, other: int, effort: Effort) -> list[PairLink]:
    """Both ways between two ranks; both call it. Returns the way to this rank, which its receiver measures."""
    rank = dist.get_rank(group)
    first = rank == one
    peer = other if first else one
    latency_s = _ping(group, peer, effort.pings) if first else _pong(group, peer, effort.pings)
    links = []
    for source, target in ((one, other), (other, one)):
        if rank == source:
            _send_until_enough(group, target, effort)
        else:
            links.append(PairLink(source, target, latency_s, _receive_until_enough(group, source, effort)))
    return links


def _ping(group: dist.ProcessGroup, peer: int, pings: int) -> float:
    """Median half round trip, told to the peer as well."""
    byte = torch.zeros(1, dtype=torch.float64)
    trips = []
    for _ in range(pings):
        before = time.perf_counter()
        dist.send(byte, group=group, group_dst=peer)
        dist.recv(byte, group=group, group_src=peer)
        trips.append(time.perf_counter() - before)
    latency_s = statistics.median(trips[2:]) / 2
    dist.send(torch.tensor([latency_s], dtype=torch.float64), group=group, group_dst=peer)
    return latency_s


def _pong(group: dist.ProcessGroup, peer: int, pings: int) -> float:
    value = torch.zeros(1, dtype=torch.float64)
    for _ in range(pings):
        dist.recv(value, group=group, group_src=peer)
        dist.send(value, group=group, group_dst=peer)
    dist.recv(value, group=group, group_src=peer)
    return float(value)


def _send_until_enough(group: dist.ProcessGroup, peer: int, effort: Effort) -> None:
    """Send transfers of the sizes that the receiver asks for; zero ends it."""
    wanted = torch.tensor([effort.first_bytes])
    while n_bytes := int(wanted):
        block = torch.zeros(n_bytes // BLOCKS, dtype=torch.uint8)
        for _ in range(BLOCKS):
            dist.send(block, group=group, group_dst=peer)
        dist.recv(wanted, group=group, group_src=peer)


def _receive_until_enough(group: dist.ProcessGroup, peer: int, effort: Effort) -> float:
    """Bits per second: sizes double until a transfer lasts; the best of some that last is least disturbed by others."""
    n_bytes, rates = effort.first_bytes, list[float]()
    while n_bytes:
        later_s = _receive(group, peer, n_bytes)
        if 2 * later_s >= effort.enough_s or n_bytes >= effort.most_bytes:
            rates.append(4 * n_bytes / max(later_s, 1e-9))
            n_bytes = 0 if len(rates) == effort.transfers else n_bytes
        else:
            n_bytes *= 2
        dist.send(torch.tensor([n_bytes]), group=group, group_dst=peer)
    return max(rates)


def _receive(group: dist.ProcessGroup, peer: int, n_bytes: int) -> float:
    """Receive one transfer; the seconds of its later half."""
    block = torch.zeros(n_bytes // BLOCKS, dtype=torch.uint8)
    times = []
    for _ in range(BLOCKS):
        dist.recv(block, group=group, group_src=peer)
        times.append(time.perf_counter())
    return times[-1] - times[BLOCKS // 2 - 1]


def _timed_all_reduce(group: dist.ProcessGroup, values: torch.Tensor) -> float:
    before = time.perf_counter()
    dist.all_reduce(values, group=group)
    return time.perf_counter() - before


def _agree(group: dist.ProcessGroup, value: float) -> float:
    """The largest over ranks."""
    tensor = torch.tensor([value], dtype=torch.float64)
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=group)
    return float(tensor)


def share(group: dist.ProcessGroup, own: list[PairLink]) -> list[PairLink]:
    """Everybody's links on every rank: a [ranks, ranks, 2] table, each entry filled by its receiver."""
    ranks = dist.get_world_size(group)
    table = torch.zeros(ranks, ranks, 2, dtype=torch.float64)
    for link in own:
        table[link.source, link.target] = torch.tensor([link.latency_s, link.bandwidth_bps], dtype=torch.float64)
    dist.all_reduce(table, group=group)
    found = []
    for source in range(ranks):
        for target in range(ranks):
            latency_s, bandwidth_bps = table[source, target].tolist()
            if bandwidth_bps > 0:
                found.append(PairLink(source, target, latency_s, bandwidth_bps))
    return found

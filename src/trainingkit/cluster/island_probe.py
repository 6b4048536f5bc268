"""Which ranks are near each other, measured: some milliseconds for each pair, half of all ranks' pairs at a time.

Pairs that share a link measure at the same time and see each other, as the exchange will. Where all ranks run on one
host nothing is measured: there is no network between them, only noise.
"""

from __future__ import annotations

import hashlib
import socket
import time
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.distributed as dist

from trainingkit.cluster.islands import FEWEST_RANKS, Found, Islands, cost_s, find_islands
from trainingkit.cluster.probe_links import Effort, PairLink, measure_pair, share

QUICK = Effort(pings=5, first_bytes=32 << 10, most_bytes=1 << 20, enough_s=0.04, transfers=2)
SWEEPS = 3
BUDGET_S = 15.0
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def probe_islands(group: dist.ProcessGroup, *, budget_s: float = BUDGET_S) -> Found:
    """Measure and group; the same on all ranks. Collective.

    Args:
        group: a Gloo group that nothing else uses meanwhile.
        budget_s: seconds after which no further pairs are begun; all ranks are then on one island.
    """
    ranks = dist.get_world_size(group)
    if ranks < FEWEST_RANKS:
        return Found(Islands.flat(ranks), f"{ranks} ranks are too few for islands of several ranks each")
    if _on_one_host(group):
        return Found(Islands.flat(ranks), "all ranks run on one host")
    links = measure_quickly(group, budget_s=budget_s)
    if links is None:
        return Found(Islands.flat(ranks), f"the links are too slow to be measured within {budget_s:g} s")
    return find_islands(costs(links, ranks))


def measure_quickly(group: dist.ProcessGroup, *, budget_s: float) -> list[PairLink] | None:
    """All pairs both ways, some times, the same on all ranks; None when there was no time for it. Collective."""
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    began_s = time.monotonic()
    own: list[PairLink] = []
    for pairs in SWEEPS * tournament(ranks):
        spent = torch.tensor([time.monotonic() - began_s], dtype=torch.float64)
        dist.all_reduce(spent, op=dist.ReduceOp.MAX, group=group)
        if float(spent) > budget_s:
            return None
        for one, other in pairs:
            if rank in (one, other):
                own += measure_pair(group, one, other, QUICK)
    return share(group, best_of(own))


def best_of(links: Sequence[PairLink]) -> list[PairLink]:
    """One link for each way, with the least latency and the highest bandwidth seen: what else runs only slows down."""
    found: dict[tuple[int, int], PairLink] = {}
    for link in links:
        way = (link.source, link.target)
        seen = found.get(way, link)
        latency_s = min(seen.latency_s, link.latency_s)
        found[way] = PairLink(*way, latency_s, max(seen.bandwidth_bps, link.bandwidth_bps))
    return list(found.values())


def costs(links: Sequence[PairLink], ranks: int) -> list[list[float]]:
    """[ranks][ranks] seconds by `cost_s`; zero on the diagonal."""
    table = [[0.0] * ranks for _ in range(ranks)]
    for link in links:
        table[link.source][link.target] = cost_s(link.latency_s, link.bandwidth_bps)
    return table


def tournament(ranks: int) -> list[list[tuple[int, int]]]:
    """Every pair once, in as few turns as possible, each rank in at most one pair a turn (the circle method).

    >>> tournament(4)
    [[(0, 3), (1, 2)], [(0, 2), (1, 3)], [(0, 1), (2, 3)]]
    """
    seats = list(range(ranks + ranks % 2))
    turns = []
    for _ in range(len(seats) - 1):
        half = len(seats) // 2
        pairs = zip(seats[:half], reversed(seats[half:]), strict=True)
        turns.append([(min(pair), max(pair)) for pair in pairs if max(pair) < ranks])
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return turns


def _on_one_host(group: dist.ProcessGroup) -> bool:
    boot = BOOT_ID.read_text(encoding="ascii") if BOOT_ID.exists() else ""
    name = hashlib.sha256(f"{socket.gethostname()} {boot}".encode()).digest()
    own = torch.frombuffer(bytearray(name[:8]), dtype=torch.int64)
    everybody = [torch.zeros_like(own) for _ in range(dist.get_world_size(group))]
    dist.all_gather(everybody, own, group=group)
    return len({int(each) for each in everybody}) == 1

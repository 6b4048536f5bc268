"""Who is the odd one out? Hosts and links that are 1.5 times worse than the median of all. Pure.

A host's link rate is the median over its peers of the slower direction, so that one slow host does not make its peers
look slow. With fewer than three hosts there is no majority to compare with.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from trainingkit.cluster.probe_host import HostRates
from trainingkit.cluster.probe_links import PairLink
from trainingkit.core.units import format_seconds

K = TypeVar("K")
WORSE = 1.5
LATENCY_SLACK_S = 0.5e-3
"""Differences of latency below this are scheduling, not network."""
FEWEST = 3

_NETWORK_ADVICE = "Check its cable, switch port, duplex and what else uses the link; or leave it out."
_HOST_ADVICE = "Check what else runs there, its clock and its cooling; or give it less work."


def odd_ones(hosts: Sequence[HostRates], links: Sequence[PairLink]) -> list[str]:
    """One sentence for each host or link that is out of line, with what to do about it.

    Ranks that share a host are not told apart: their link is memory, and they compete for the same cores.
    """
    names = {host.rank: host.name for host in hosts}
    between = [link for link in links if names[link.source] != names[link.target]]
    shown = {host.rank: f"rank {host.rank} ({host.name})" for host in hosts}
    return _slow_links(shown, between) + _far_hosts(shown, between) + _slow_hosts(hosts)


def outliers(values: Mapping[K, float], *, lower_is_worse: bool, slack: float = 0.0) -> list[tuple[K, float]]:
    """(key, median of all) of each value that is `WORSE` times worse than the median.

    >>> outliers({0: 100.0, 1: 98.0, 2: 20.0}, lower_is_worse=True)
    [(2, 98.0)]
    """
    if len(values) < FEWEST:
        return []
    median = statistics.median(values.values())
    if lower_is_worse:
        return [(key, median) for key, value in values.items() if value * WORSE < median]
    return [(key, median) for key, value in values.items() if value > median * WORSE and value > median + slack]


def host_rates_bps(links: Iterable[PairLink]) -> dict[int, float]:
    """rank -> median over its peers of the slower direction of the pair."""
    slower: dict[tuple[int, int], float] = {}
    for link in links:
        pair = (min(link.source, link.target), max(link.source, link.target))
        slower[pair] = min(slower.get(pair, link.bandwidth_bps), link.bandwidth_bps)
    return _median_by_rank(slower)


def host_latencies_s(links: Iterable[PairLink]) -> dict[int, float]:
    """rank -> median latency to its peers."""
    return _median_by_rank({(link.source, link.target): link.latency_s for link in links})


def _slow_links(names: dict[int, str], links: Sequence[PairLink]) -> list[str]:
    rates = host_rates_bps(links)
    slow = outliers(rates, lower_is_worse=True)
    sentences = [
        f"{names[rank]} has a slow link: {rates[rank] / 1e6:.3g} Mbit/s, where the median is {median / 1e6:.3g}. "
        + _NETWORK_ADVICE
        for rank, median in slow
    ]
    named = {rank for rank, _ in slow}
    ways = {number: link.bandwidth_bps for number, link in enumerate(links)}
    for number, median in outliers(ways, lower_is_worse=True):
        link = links[number]
        if not named & {link.source, link.target}:
            where = f"{names[link.source]} to {names[link.target]}"
            found = f"{link.bandwidth_bps / 1e6:.3g} Mbit/s, where the median is {median / 1e6:.3g}"
            sentences.append(f"The way from {where} is slow: {found}. Check the route between the two.")
    return sentences


def _far_hosts(names: dict[int, str], links: Sequence[PairLink]) -> list[str]:
    latencies = host_latencies_s(links)
    return [
        f"{names[rank]} is far away: {format_seconds(latencies[rank])} one way, where the median is "
        f"{format_seconds(median)}. Put it into a group of its own, or leave it out."
        for rank, median in outliers(latencies, lower_is_worse=False, slack=LATENCY_SLACK_S)
    ]


def _slow_hosts(hosts: Sequence[HostRates]) -> list[str]:
    rates: tuple[tuple[str, Callable[[HostRates], float], str], ...] = (
        ("fp32 products", lambda host: host.gemm_fp32_gflops, "GFLOP/s"),
        ("bf16 products", lambda host: host.gemm_bf16_gflops, "GFLOP/s"),
        ("copies", lambda host: host.copy_gb_per_s, "GB/s"),
    )
    sentences = []
    for what, rate, unit in rates:
        best: dict[str, float] = {}
        for host in hosts:
            best[host.name] = max(best.get(host.name, 0.0), rate(host))
        for name, median in outliers(best, lower_is_worse=True):
            found = f"{best[name]:.3g} {unit} for {what}, where the median is {median:.3g}"
            sentences.append(f"Host {name} computes slowly: {found}. {_HOST_ADVICE}")
    return sentences


def _median_by_rank(values: dict[tuple[int, int], float]) -> dict[int, float]:
    by_rank: dict[int, list[float]] = {}
    for pair, value in values.items():
        for rank in pair:
            by_rank.setdefault(rank, []).append(value)
    return {rank: statistics.median(found) for rank, found in sorted(by_rank.items())}

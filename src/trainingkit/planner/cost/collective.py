"""Seconds of collectives by latency and bandwidth on the links they cross.

Ring algorithms: all-reduce 2(n-1)/n of the bytes, reduce-scatter and all-gather half of it. A group that spans hosts
enters each host with as many network cards as it has members there, as NCCL's rings do. Latency grows with the hops
of a tree over hosts plus those of the ring inside one (NCCL switches to trees for small messages).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from trainingkit.planner.cluster.spec import Cluster

FAR_SHARE = 0.8
"""Share of the network's rate that a large collective reaches (340 of 400 Gbit/s were seen on EFA)."""

BUCKET_BYTES = 2e8
"""Usual size of a message of gradients or parameters."""
HOP_S = 1.5e-6
"""A hop of a ring inside an island."""


@dataclass(frozen=True)
class Group:
    """A communicator: how many ranks, and how many of them share an island."""

    size: int
    near: int

    @property
    def islands(self) -> int:
        """Islands that it spans."""
        return math.ceil(self.size / self.near)


def group_of(cluster: Cluster, size: int, stride: int) -> Group:
    """Ranks `0, stride, 2 * stride ...`: the neighbours on an axis whose inner axes have `stride` ranks."""
    return Group(size, max(1, min(size, cluster.island // stride if stride < cluster.island else 1)))


def _bandwidth(cluster: Cluster, group: Group) -> float:
    near = cluster.gpu.near_gbps * 1e9
    if group.islands == 1:
        return near
    return min(near, group.near * cluster.far_bytes_s * FAR_SHARE)


def _latency(cluster: Cluster, group: Group) -> float:
    near = cluster.gpu.near_latency_us * 1e-6 * (1 + 0.25 * (group.near - 1))
    return near + 2e-6 * cluster.far_latency_us * math.log2(group.islands) if group.islands > 1 else near


def gather_seconds(cluster: Cluster, group: Group, n_bytes: float, messages: float = 1.0) -> float:
    """All-gather to, or reduce-scatter of, `n_bytes` (the whole, not a rank's part), in so many messages.

    These have ring algorithms only, so each message pays for every hop; at least one is sent for each `BUCKET_BYTES`.
    """
    if group.size <= 1:
        return 0.0
    far = group.islands if group.islands > 1 else 0
    hops = HOP_S * (group.size - far) + 0.5e-6 * cluster.far_latency_us * far
    count = max(messages, n_bytes / BUCKET_BYTES)
    return n_bytes * (group.size - 1) / group.size / _bandwidth(cluster, group) + count * hops


def reduce_seconds(cluster: Cluster, group: Group, n_bytes: float) -> float:
    """All-reduce of `n_bytes`."""
    if group.size <= 1:
        return 0.0
    return 2.0 * n_bytes * (group.size - 1) / group.size / _bandwidth(cluster, group) + _latency(cluster, group)


def exchange_seconds(cluster: Cluster, group: Group, far_bytes: float, near_bytes: float) -> float:
    """All-to-all in which each rank sends `far_bytes` to islands, one copy for each, and `near_bytes` inside one."""
    if group.size <= 1:
        return 0.0
    near = near_bytes * (group.near - 1) / group.near / (cluster.gpu.near_gbps * 1e9)
    far = far_bytes * (1 - 1 / group.islands) / (cluster.far_bytes_s * FAR_SHARE)
    return max(near, far) + _latency(cluster, group)


def send_seconds(cluster: Cluster, n_bytes: float, *, far: bool) -> float:
    """From one device to another, on one link."""
    if far:
        return n_bytes / (cluster.far_bytes_s * FAR_SHARE) + cluster.far_latency_us * 1e-6
    return n_bytes / (cluster.gpu.near_gbps * 1e9) + cluster.gpu.near_latency_us * 1e-6

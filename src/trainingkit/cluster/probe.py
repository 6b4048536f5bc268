"""The probe: every rank measures its host and its links, and all ranks end up with the same inventory.

Works alone (no links then) and over any launcher. `Inventory.table` is cluster.toml: [[hosts]] by rank, [[links]] one
way each, [[collectives]] by size, and what stands out.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from trainingkit.cluster.meeting import Meeting, join
from trainingkit.cluster.odd_ones import odd_ones
from trainingkit.cluster.place import Place
from trainingkit.cluster.probe_host import HostRates, measure_host
from trainingkit.cluster.probe_links import Collective, PairLink, measure_collectives, measure_links
from trainingkit.cluster.threads import threads_per_worker

FORMAT = 1


@dataclass(frozen=True)
class Inventory:
    """What the probe found.

    Args:
        not_measured: pairs of ranks that there was no time for.
        odd: one sentence for each host or link that is out of line.
    """

    hosts: tuple[HostRates, ...]
    links: tuple[PairLink, ...] = ()
    collectives: tuple[Collective, ...] = ()
    not_measured: tuple[tuple[int, int], ...] = ()
    odd: tuple[str, ...] = ()

    def table(self) -> dict[str, Any]:
        """JSON-able and TOML-able."""
        return {
            "format": FORMAT,
            "odd": list(self.odd),
            "not_measured": [list(pair) for pair in self.not_measured],
            "hosts": [dataclasses.asdict(host) for host in self.hosts],
            "links": [dataclasses.asdict(link) for link in self.links],
            "collectives": [dataclasses.asdict(collective) for collective in self.collectives],
        }


def probe(place: Place, *, budget_s: float, join_s: float, timeout_s: float) -> Inventory:
    """Measure. All ranks call it; all get the same. The process groups stay open: `meeting.leave` closes them.

    Args:
        budget_s: seconds after which no further pair is begun.
        join_s: how long to wait for all ranks to appear.
        timeout_s: deadline of one transfer.

    Raises:
        ClusterError: ranks are missing.
        RuntimeError: a rank or the way to it was lost on the way.
    """
    torch.set_num_threads(threads_per_worker(place.local_world_size))
    meeting = join(place, join_s=join_s, timeout_s=timeout_s)
    host = measure_host(place.rank)
    if meeting is None:
        return Inventory((host,))
    group = meeting.group
    dist.barrier(group=group)
    links, left = measure_links(group, budget_s=budget_s)
    collectives = measure_collectives(group)
    hosts = _all_hosts(meeting, host)
    return Inventory(hosts, tuple(links), tuple(collectives), tuple(left), tuple(odd_ones(hosts, links)))


def _all_hosts(meeting: Meeting, own: HostRates) -> tuple[HostRates, ...]:
    """Everybody's rates, by the store that the ranks met at."""
    meeting.store.set(f"probe/{meeting.rank}", json.dumps(dataclasses.asdict(own)))
    ranks = dist.get_world_size(meeting.group)
    found = tuple(HostRates(**json.loads(meeting.store.get(f"probe/{rank}"))) for rank in range(ranks))
    dist.barrier(group=meeting.group)
    return found

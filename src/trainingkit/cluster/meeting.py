"""How ranks meet: a store with a deadline that names who is missing, and process groups as plain arguments."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from functools import partial

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from trainingkit.cluster.fence import call_roll
from trainingkit.cluster.place import Place
from trainingkit.core.errors import ClusterError

MET = "met"
"""Key of the store that says that ranks of this job have met before."""


@dataclass(frozen=True)
class Meeting:
    """The ranks that met: their process group, and their store.

    Args:
        store: of this meeting alone.
        job_store: of all meetings of a job whose launcher keeps its store over restarts; None: `store`.
    """

    group: dist.ProcessGroup
    store: Store
    rank: int
    job_store: Store | None = None

    def share(self, key: str, value: str) -> str:
        """Rank 0's `value`, on every rank. All ranks call it; the others' values do not matter."""
        if self.rank == 0:
            self.store.set(key, value)
        return self.store.get(key).decode()

    def keep(self, key: str, value: str) -> str:
        """As `share`, but where an earlier meeting of the job has kept a value, that one counts."""
        if self.rank == 0 and self.job_store is not None:
            if not self.job_store.check([key]):
                self.job_store.set(key, value)
            value = self.job_store.get(key).decode()
        return self.share(key, value)


def join(place: Place, *, join_s: float, timeout_s: float, backend: str = "gloo") -> Meeting | None:
    """Meet the other ranks; None without a launcher, for then there is nobody else.

    Args:
        join_s: how long to wait for all ranks to appear.
        timeout_s: deadline of one collective.

    Raises:
        ClusterError: the port is taken, the host does not answer, or ranks are missing (they are named).
    """
    if place.alone:
        return None
    job_store = PrefixStore("trainingkit", _store(place, join_s))
    missing = partial(_missing, place=place, join_s=join_s)
    name = call_roll(job_store, place.rank, place.world_size, deadline_s=join_s, missing=missing)
    job_store.set(MET, "1")
    store = PrefixStore(name, job_store)
    deadline = datetime.timedelta(seconds=timeout_s)
    dist.init_process_group(backend, store=store, rank=place.rank, world_size=place.world_size, timeout=deadline)
    group = dist.group.WORLD
    assert group is not None
    return Meeting(group, store, place.rank, job_store)


def lane(group: dist.ProcessGroup | None, *, timeout_s: float) -> dist.ProcessGroup | None:
    """Another Gloo group over the same ranks, so that its collectives keep an order of their own. All ranks call it."""
    if group is None:
        return None
    ranks = dist.get_process_group_ranks(group)
    return dist.new_group(ranks, backend="gloo", timeout=datetime.timedelta(seconds=timeout_s))  # type: ignore[return-value]


def met_before(place: Place, *, join_s: float) -> bool:
    """Whether ranks of this job have met already, so that this process belongs to a restart.

    Where no store outlives the workers, every start of a job that may be restarted counts as one.
    """
    if place.alone or not place.agent_store:
        return place.max_restarts > 0
    return PrefixStore("trainingkit", _store(place, join_s)).check([MET])


def leave() -> None:
    """Close all process groups of this process. Safe to call twice."""
    if dist.is_initialized():
        dist.destroy_process_group()


def _store(place: Place, join_s: float) -> Store:
    serve = place.rank == 0 and not place.agent_store
    where = f"{place.master_addr}:{place.master_port}"
    try:
        return TCPStore(
            place.master_addr,
            place.master_port,
            place.world_size,
            is_master=serve,
            timeout=datetime.timedelta(seconds=join_s),
            wait_for_workers=False,
        )
    except (RuntimeError, ValueError) as error:
        text = str(error)
        if "EADDRINUSE" in text or "in use" in text:
            raise ClusterError(
                "The port where the workers should meet is in use.",
                field="MASTER_PORT",
                found=where,
                expected="a free port on the host of rank 0",
                next_step="Set MASTER_PORT to another port; without a launcher, `trainingkit train` picks a free one.",
            ) from error
        raise ClusterError(
            "The host of rank 0 does not answer.",
            field="MASTER_ADDR",
            found=where,
            expected="a reachable host that listens there",
            next_step="Check name, route, port and firewall from this host, and that rank 0 was started.",
        ) from error


def _missing(ranks: list[int], place: Place, join_s: float) -> ClusterError:
    names = ", ".join(str(rank) for rank in ranks[:8])
    return ClusterError(
        f"{len(ranks)} of {place.world_size} ranks did not appear within {join_s:g} s.",
        field="WORLD_SIZE",
        found=f"missing ranks: {names}{' ...' if len(ranks) > 8 else ''}",
        expected="the same command started on every host",
        next_step="Look at those hosts' output; raise sync.join_s if they are only slow to start.",
    )

"""How ranks meet: a store with a deadline that names who is missing, and process groups as plain arguments."""

from __future__ import annotations

import datetime
import time
from dataclasses import dataclass

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from trainingkit.cluster.place import Place
from trainingkit.core.errors import ClusterError

JOIN_POLL_S = (0.02, 0.5)
"""First and longest pause between two looks at who has joined."""


@dataclass(frozen=True)
class Meeting:
    """The ranks that met: their process group and their store."""

    group: dist.ProcessGroup
    store: Store
    rank: int

    def share(self, key: str, value: str) -> str:
        """Rank 0's `value`, on every rank. All ranks call it; the others' values do not matter."""
        if self.rank == 0:
            self.store.set(key, value)
        return self.store.get(key).decode()


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
    store = _store(place, join_s)
    store = PrefixStore(f"trainingkit/{place.attempt}", store)
    _wait_for_all(store, place, join_s)
    deadline = datetime.timedelta(seconds=timeout_s)
    dist.init_process_group(backend, store=store, rank=place.rank, world_size=place.world_size, timeout=deadline)
    group = dist.group.WORLD
    assert group is not None
    return Meeting(group, store, place.rank)


def lane(group: dist.ProcessGroup | None, *, timeout_s: float) -> dist.ProcessGroup | None:
    """Another Gloo group over the same ranks, so that its collectives keep an order of their own. All ranks call it."""
    if group is None:
        return None
    ranks = dist.get_process_group_ranks(group)
    return dist.new_group(ranks, backend="gloo", timeout=datetime.timedelta(seconds=timeout_s))  # type: ignore[return-value]


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


def _wait_for_all(store: Store, place: Place, join_s: float) -> None:
    store.set(f"joined/{place.rank}", "1")
    end = time.monotonic() + join_s
    keys = {f"joined/{rank}": rank for rank in range(place.world_size)}
    pause, longest = JOIN_POLL_S
    while not store.check(list(keys)):
        missing = [rank for key, rank in keys.items() if not store.check([key])]
        if missing and time.monotonic() > end:
            raise _missing(missing, place, join_s)
        time.sleep(pause)
        pause = min(longest, 2 * pause)


def _missing(ranks: list[int], place: Place, join_s: float) -> ClusterError:
    names = ", ".join(str(rank) for rank in ranks[:8])
    return ClusterError(
        f"{len(ranks)} of {place.world_size} ranks did not appear within {join_s:g} s.",
        field="WORLD_SIZE",
        found=f"missing ranks: {names}{' ...' if len(ranks) > 8 else ''}",
        expected="the same command started on every host",
        next_step="Look at those hosts' output; raise sync.join_s if they are only slow to start.",
    )

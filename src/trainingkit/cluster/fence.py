"""How ranks find out who is there now, in a store that may still hold what dead ones have written.

An elastic launcher that restarts workers may keep its store, and the number of restarts that it tells is each host's
own: neither says which round this is (PyTorch issue 135712). So rank 0 calls a roll. Every process has a token that
nobody had before it:

    rank r     writes its token; answers a roll that names its token in place r; waits until that roll is complete
    rank 0     calls a new roll under a new name whenever a token has changed; a roll that all have answered is complete

A dead process's token may get into a roll, which then stays incomplete until the living one has written its own.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator

from torch._C._distributed_c10d import Store

POLL_S = (0.02, 0.5)
"""First and longest pause between two looks at the store."""

Missing = Callable[[list[int]], Exception]


def call_roll(store: Store, rank: int, world_size: int, *, deadline_s: float, missing: Missing) -> str:
    """A name that exactly the processes of this round share, once all of them are there.

    Args:
        deadline_s: how long to wait for all.
        missing: makes the error from the ranks that did not appear.
    """
    token = uuid.uuid4().hex
    store.set(f"here/{rank}", token)
    looks = _looks(deadline_s)
    name = _lead(store, token, world_size, looks) if rank == 0 else _follow(store, token, rank, looks)
    if name is None:
        raise missing(_absent(store, world_size))
    return name


def _lead(store: Store, token: str, world_size: int, looks: Iterator[None]) -> str | None:
    keys = [f"here/{rank}" for rank in range(world_size)]
    called: list[str] = []
    name = ""
    for _ in looks:
        if not store.check(keys):
            continue
        tokens = [value.decode() for value in store.multi_get(keys)]
        if tokens != called:
            called, name = tokens, uuid.uuid4().hex
            store.set("roll", json.dumps({"name": name, "tokens": tokens}))
            store.set(f"{name}/answer/0", token)
        if store.check([f"{name}/answer/{rank}" for rank in range(world_size)]):
            store.set(f"{name}/complete", "1")
            return name
    return None


def _follow(store: Store, token: str, rank: int, looks: Iterator[None]) -> str | None:
    for _ in looks:
        if not store.check(["roll"]):
            continue
        roll = json.loads(store.get("roll"))
        if rank >= len(roll["tokens"]) or roll["tokens"][rank] != token:
            continue
        store.set(f"{roll['name']}/answer/{rank}", token)
        if store.check([f"{roll['name']}/complete"]):
            return roll["name"]
    return None


def _looks(deadline_s: float) -> Iterator[None]:
    end = time.monotonic() + deadline_s
    pause, longest = POLL_S
    yield
    while time.monotonic() < end:
        time.sleep(pause)
        pause = min(longest, 1.5 * pause)
        yield


def _absent(store: Store, world_size: int) -> list[int]:
    """Ranks that wrote no token; where all have, those that did not answer the last roll."""
    ranks = range(world_size)
    silent = [rank for rank in ranks if not store.check([f"here/{rank}"])]
    if silent or not store.check(["roll"]):
        return silent or list(ranks)
    name = json.loads(store.get("roll"))["name"]
    return [rank for rank in ranks if not store.check([f"{name}/answer/{rank}"])] or list(ranks)

"""Ranks find exactly the living ones, whatever dead ones have left in the store."""

from __future__ import annotations

import threading

import pytest
from torch._C._distributed_c10d import HashStore, PrefixStore, Store

from trainingkit.cluster.fence import call_roll
from trainingkit.cluster.meeting import Meeting, met_before
from trainingkit.cluster.place import ALONE, Place


class NotThere(Exception):
    """Carries the missing ranks."""


def round_of(store: Store, size: int, *, absent: int | None = None, deadline_s: float = 20.0) -> list[str | list[int]]:
    """What each of `size` ranks got: the name of the round, or the ranks it missed."""
    found: list[str | list[int]] = [""] * size

    def run(rank: int) -> None:
        try:
            found[rank] = call_roll(store, rank, size, deadline_s=deadline_s, missing=NotThere)
        except NotThere as error:
            found[rank] = error.args[0]

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size) if rank != absent]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_every_round_in_a_kept_store_has_a_name_of_its_own() -> None:
    store = HashStore()
    names = [round_of(store, size) for size in (4, 2, 3, 3, 1, 4)]
    assert all(len(set(map(str, each))) == 1 for each in names)
    assert len({str(each[0]) for each in names}) == len(names)


def test_the_missing_are_named() -> None:
    assert round_of(HashStore(), 3, absent=1, deadline_s=0.3)[::2] == [[1], [1]]
    assert round_of(HashStore(), 2, absent=0, deadline_s=0.3)[1] == [0]


def test_what_a_dead_rank_left_is_not_taken_for_it() -> None:
    """Rank 2 of the round before is in the store; this round's never comes."""
    store = HashStore()
    assert len(set(map(str, round_of(store, 3)))) == 1
    assert round_of(store, 3, absent=2, deadline_s=0.3)[:2] == [[2], [2]]


def test_a_rank_that_comes_late_is_waited_for() -> None:
    """Rank 0 has called a roll with the dead one's token before the living one writes its own."""
    store = HashStore()
    round_of(store, 2)
    old = store.get("roll")
    names: dict[int, str] = {}

    def join(rank: int) -> None:
        names[rank] = call_roll(store, rank, 2, deadline_s=20.0, missing=NotThere)

    first = threading.Thread(target=join, args=(0,))
    first.start()
    while store.get("roll") == old:
        threading.Event().wait(0.001)
    stale = store.get("roll")
    join(1)
    first.join()
    assert names[0] == names[1] and names[0] not in old.decode() + stale.decode()


@pytest.mark.parametrize("kept", [True, False])
def test_what_a_job_keeps(kept: bool) -> None:
    job = HashStore() if kept else None
    found = [
        Meeting(None, PrefixStore("round", HashStore()), 0, job).keep("run/0", value)  # type: ignore[arg-type]
        for value in ("first", "second")
    ]
    assert found == ["first", "first" if kept else "second"]


def test_without_a_kept_store_a_job_that_may_be_restarted_counts_as_restarted() -> None:
    assert not met_before(ALONE, join_s=1.0)
    for most in (0, 3):
        place = Place(0, 2, 0, 2, "torchrun", max_restarts=most)
        assert met_before(place, join_s=1.0) == (most > 0)

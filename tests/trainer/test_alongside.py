"""A rank whose records are lost: what it takes of another rank's, and what stays as its snapshot has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from small_runs import open_alone

from trainingkit.recovery.journal import Cover, Step
from trainingkit.trainer.alongside import find_alike, without_own


def feed(batches: int, **other: Any) -> dict[str, Any]:
    return {"pass": 0, "batches": batches, "pass_random": {"torch": f"of {other}"}, **other}


def state(batches: int, kept: dict[str, Any], **other: Any) -> dict[str, Any]:
    return {"epoch": 0, "feed": feed(batches, **other), "kept": kept}


def taken(tmp_path: Path, before: dict[str, Any], after: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """What rank 1 goes on with."""
    step = Step(9, 1, {}, {}, {rank: {"extra": extra} for rank, extra in after.items()}, {})
    alike = find_alike(open_alone(tmp_path), Cover((step,), 1, None, (1,)), before)
    return without_own(before, next(iter(after.values())), alike)


def test_ranks_that_walk_alongside(tmp_path: Path) -> None:
    before = state(2, {"judge": {"best": 3.0}}, rank=1)
    before["feed"].pop("rank")
    found = taken(tmp_path, before, {rank: state(9, {"judge": {"best": 2.0}}) for rank in (0, 2)})
    assert found["feed"] == {**feed(9), "pass_random": before["feed"]["pass_random"]}
    assert found["kept"] == {"judge": {"best": 2.0}}


def test_ranks_with_places_of_their_own(tmp_path: Path) -> None:
    before = state(2, {"judge": {"best": 3.0}, "own": 10})
    after = {rank: state(9, {"judge": {"best": 2.0}, "own": rank}, shard=rank) for rank in (0, 2)}
    found = taken(tmp_path, before, after)
    assert found["feed"] == before["feed"]
    assert found["kept"] == {"judge": {"best": 2.0}, "own": 10}

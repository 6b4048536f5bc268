"""Snapshots in memory: a lost host's files come from its neighbour, and a whole snapshot comes back to disk."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from ranks import Context, Pool
from trainingkit.recovery import Snapshots, find, load_new
from trainingkit.recovery.diskspace import NotWritten
from trainingkit.recovery.memory import folder_of_run, left_in_memory
from trainingkit.recovery.rescue import rescue


def opened(context: Context, folder: str) -> tuple[Snapshots, Path]:
    """Each rank is on a host of its own: `folder/host-R` is its memory."""
    group = context.group if context.world_size > 1 else None
    snapshots = Snapshots(Path(folder) / "disk", keep=2, rank=context.rank, world_size=context.world_size, group=group)
    return snapshots, Path(folder) / f"host-{context.rank}"


def tensors_of(rank: int, step: int) -> dict[str, torch.Tensor]:
    shared = {f"model/{name}": torch.full((700 + name,), float(step * 10 + name)) for name in range(5)}
    return {**shared, f"rank-{rank}/residual": torch.full((50 + rank,), rank + step / 8)}


def keep(context: Context, folder: str, on_disk: list[int], in_memory: list[int]) -> None:
    snapshots, memory = opened(context, folder)
    with snapshots:
        for step in sorted(on_disk + in_memory):
            where = memory if step in in_memory else None
            state = {"rank": context.rank, "step": step}
            snapshots.save(step, tensors_of(context.rank, step), state, shared={"step": step}, memory=where, wait=True)


def restart(context: Context, folder: str) -> Any:
    snapshots, memory = opened(context, folder)
    found = rescue(snapshots.target, memory, sweeps=True)
    assert not memory.exists() or not any(memory.iterdir())
    return found


def check(folder: Path, step: int, ranks: int) -> None:
    newest = find(folder / "disk")[0]
    assert (newest.step, newest.problem, newest.world_size) == (step, None, ranks)
    for rank in range(ranks):
        tensors, state = load_new(newest.path, of=rank)
        assert state == {"rank": rank, "step": step}
        assert set(tensors) == set(tensors_of(rank, step))
        assert all(tensors[name].equal(values) for name, values in tensors_of(rank, step).items())


@pytest.mark.parametrize("dead", range(3))
def test_one_host_may_die(pool: Pool, tmp_path: Path, dead: int) -> None:
    """And the run goes on with the ranks that are left, or with a new host in its place."""
    pool.run(keep, 3, str(tmp_path), [4], [6, 8])
    kept = {path.name for path in (tmp_path / "host-1").rglob("*") if path.is_file()}
    assert {"rank-0.json", "rank-1.json", "manifest.json"} <= kept and "rank-2.json" not in kept
    assert sum(path.is_dir() for path in (tmp_path / "host-1" / "rank-1").iterdir()) == 1, "the one before is gone"
    shutil.rmtree(tmp_path / f"host-{dead}")
    if dead == 2:
        assert pool.run(restart, 2, str(tmp_path)) == [(8, 4)] * 2
    else:
        assert pool.run(restart, 3, str(tmp_path)) == [(8, 4)] * 3
    check(tmp_path, 8, 3)
    assert pool.run(restart, 3, str(tmp_path)) == [None] * 3, "there is nothing left to do"


def test_two_neighbours_may_not(pool: Pool, tmp_path: Path) -> None:
    pool.run(keep, 3, str(tmp_path), [4], [6])
    shutil.rmtree(tmp_path / "host-1")
    shutil.rmtree(tmp_path / "host-0")
    assert pool.run(restart, 3, str(tmp_path)) == [None] * 3
    check(tmp_path, 4, 3)


def test_memory_that_is_older_than_disk_is_not_used(pool: Pool, tmp_path: Path) -> None:
    pool.run(keep, 2, str(tmp_path), [8], [6])
    assert pool.run(restart, 2, str(tmp_path)) == [None] * 2
    check(tmp_path, 8, 2)


def test_a_damaged_copy_is_replaced_by_the_neighbours(pool: Pool, tmp_path: Path) -> None:
    pool.run(keep, 2, str(tmp_path), [], [6])
    own = tmp_path / "host-0" / "rank-0" / "step-00000006" / "rank-0.json"
    own.write_bytes(own.read_bytes()[:-1] + b"x")
    assert pool.run(restart, 2, str(tmp_path)) == [(6, 0)] * 2
    check(tmp_path, 6, 2)


def test_alone(tmp_path: Path) -> None:
    with Snapshots(tmp_path / "disk", keep=1) as snapshots:
        memory = tmp_path / "memory"
        snapshots.save(3, tensors_of(0, 3), {"rank": 0, "step": 3}, memory=memory, wait=True)
        assert not (tmp_path / "disk").exists()
        assert rescue(snapshots.target, memory, sweeps=True) == (3, 0)
    check(tmp_path, 3, 1)


def test_no_room_in_memory_is_said_and_keeps_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Snapshots(tmp_path / "disk", keep=1) as snapshots:
        memory = tmp_path / "memory"
        snapshots.save(3, tensors_of(0, 3), {"rank": 0, "step": 3}, memory=memory, wait=True)
        monkeypatch.setattr("trainingkit.recovery.diskspace.free_bytes", lambda folder: 10)
        with pytest.raises(NotWritten, match="the disk is full"):
            snapshots.save(4, tensors_of(0, 4), {}, memory=memory, wait=True)
        monkeypatch.undo()
        assert rescue(snapshots.target, memory, sweeps=True) == (3, 0)


def test_a_run_folder_that_is_made_anew_has_another_memory(tmp_path: Path) -> None:
    folder = tmp_path / "snapshots"
    folder.mkdir()
    assert not left_in_memory(folder, base=tmp_path)
    first = folder_of_run(folder, base=tmp_path)
    assert not left_in_memory(folder, base=tmp_path)
    (first / "rank-0" / "step-00000001").mkdir(parents=True)
    assert left_in_memory(folder, base=tmp_path)
    assert folder_of_run(folder, base=tmp_path) == first
    shutil.rmtree(folder)
    folder.mkdir()
    assert folder_of_run(folder, base=tmp_path) != first

"""Several ranks: replicated tensors once, own tensors each; a failure anywhere is a failure everywhere."""

import datetime
import os
import signal
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from ranks import Context, Pool, RankFailed
from trainingkit.core.errors import CheckpointError
from trainingkit.recovery import Snapshots, find, load, load_new, newest_good, read_shared, store

TIMEOUT_S = 20


def opened(context: Context, folder: str) -> tuple[Snapshots, dist.ProcessGroup]:
    group = dist.new_group(backend="gloo", timeout=datetime.timedelta(seconds=TIMEOUT_S))
    snapshots = Snapshots(Path(folder), keep=2, rank=context.rank, world_size=context.world_size, group=group)
    return snapshots, group


def tensors_of(rank: int, step: int) -> dict[str, torch.Tensor]:
    shared = {f"model/{i}": torch.full((1000 + i,), float(step * 10 + i)).bfloat16() for i in range(5)}
    return {
        **shared,
        "model/scalar": torch.tensor(step),
        f"rank-{rank}/residual": torch.full((50 + rank,), rank + step / 8),
    }


def round_trip(context: Context, folder: str) -> None:
    snapshots, group = opened(context, folder)
    rank = context.rank
    for step in (1, 2, 3):
        snapshots.save(step, tensors_of(rank, step), {"rank": rank, "step": step}, shared={"step": step})
        dist.all_reduce(torch.ones(10_000), group=context.group)
    snapshots.close()
    dist.barrier(group=group)
    found, passed_over = newest_good(Path(folder))
    assert found is not None
    assert (found.step, found.world_size, passed_over) == (3, context.world_size, [])
    target = {name: torch.zeros_like(tensor) for name, tensor in tensors_of(rank, 3).items()}
    at = {"rank": rank, "world_size": context.world_size, "group": group}
    assert load(found.path, target, **at) == {"rank": rank, "step": 3}
    assert all(target[name].equal(tensor) for name, tensor in tensors_of(rank, 3).items())
    new, _ = load_new(found.path, **at)
    assert set(new) == set(target)
    assert all(new[name].equal(tensor) for name, tensor in target.items())


@pytest.mark.parametrize("world_size", [2, 3])
def test_each_rank_gets_its_own_back(pool: Pool, tmp_path, world_size):
    pool.run(round_trip, world_size, str(tmp_path))
    assert [found.step for found in find(tmp_path)] == [3, 2]
    newest = tmp_path / "step-00000003"
    payload = sum(t.nbytes for name, t in tensors_of(0, 3).items() if name.startswith("model/"))
    stored = sum(path.stat().st_size for path in newest.glob("*.safetensors"))
    assert payload < stored < payload + 10_000, "replicated tensors are stored once"
    assert len(list(newest.glob("*.safetensors"))) == world_size
    assert read_shared(newest) == {"step": 3}


def test_another_number_of_ranks_reads_what_it_can(pool: Pool, tmp_path, caplog):
    pool.run(round_trip, 2, str(tmp_path))
    newest = tmp_path / "step-00000003"
    tensors, state = load_new(newest, rank=1)
    assert state == {"rank": 1, "step": 3}
    assert "rank-1/residual" in tensors
    assert "rank-0/residual" not in tensors
    load_new(newest, rank=0)
    assert "the state of ranks 1 to 1 is not used" in caplog.text
    tensors, state = load_new(newest, rank=2)
    assert state == {}
    assert set(tensors) == {name for name in tensors_of(0, 3) if name.startswith("model/")}
    assert "rank 2 starts without state" in caplog.text


def refused(call) -> str:
    with pytest.raises(CheckpointError) as caught:
        call()
    return str(caught.value)


def failing_on_one(context: Context, folder: str) -> list[str]:
    snapshots, group = opened(context, folder)
    rank = context.rank
    own = tensors_of(rank, 1)
    snapshots.save(1, own, {}, wait=True)
    texts = [refused(lambda: snapshots.save(2 + rank, own, {}, wait=True))]
    unsupported = torch.zeros(4).to_sparse() if rank == 1 else torch.zeros(4)
    texts.append(refused(lambda: snapshots.save(4, {f"rank-{rank}/x": unsupported}, {}, wait=True)))
    alien = {"sampler": object()} if rank == 2 else {}
    texts.append(refused(lambda: snapshots.save(4, own, alien, wait=True)))
    if rank == 0:
        (Path(folder) / ".step-00000005.partial").write_text("in the way")
    texts.append(refused(lambda: snapshots.save(5, own, {}, wait=True)))
    if rank == 0:
        (Path(folder) / ".step-00000005.partial").unlink()
    snapshots.save(6, own, {}, wait=True)
    path = Path(folder) / "step-00000006"
    target = {name: torch.zeros_like(tensor) for name, tensor in own.items()}
    if rank == 1:
        del target["model/0"]
    at = {"rank": rank, "world_size": context.world_size, "group": group}
    texts.append(refused(lambda: load(path, target, **at)))
    dist.barrier(group=group)
    if rank == 0:
        file = max(path.glob("*.safetensors"))
        file.write_bytes(file.read_bytes()[:-1] + b"\xff")
    dist.barrier(group=group)
    texts.append(refused(lambda: load(path, target, **at)))
    return texts


def test_a_failure_on_one_rank_is_told_on_all(pool: Pool, tmp_path):
    first, *others = pool.run(failing_on_one, 3, str(tmp_path))
    assert all(other == first for other in others)
    steps, unsupported, no_json, in_the_way, misfit, damaged = first
    assert "The ranks save different steps." in steps
    assert "Only dense tensors" in unsupported
    assert "state.sampler" in no_json
    assert "could not be written" in in_the_way
    assert "extra: model/0" in misfit
    assert "is damaged" in damaged
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000001", "step-00000006"]


def lose_a_peer(context: Context, folder: str) -> tuple[str, float]:
    snapshots, _ = opened(context, folder)
    snapshots.save(1, tensors_of(context.rank, 1), {}, wait=True)
    dist.barrier(group=context.group)
    if context.rank == 1:
        write = store.write

        def die_in_the_middle(*args, **kwargs):
            write(*args, **kwargs)
            os.kill(os.getpid(), signal.SIGKILL)

        store.write = die_in_the_middle
    start = time.monotonic()
    snapshots.save(2, tensors_of(context.rank, 2), {})
    text = refused(lambda: snapshots.save(3, tensors_of(context.rank, 3), {}))
    Path(f"{folder}-said-{context.rank}").write_text(f"{time.monotonic() - start}\n{text}")
    raise RuntimeError("seen")


def test_a_peer_lost_during_a_save_leaves_no_snapshot_and_no_hang(pool: Pool, tmp_path):
    folder = tmp_path / "snapshots"
    with pytest.raises(RankFailed):
        pool.run(lose_a_peer, 3, str(folder), grace_s=TIMEOUT_S + 5.0)
    for rank in (0, 2):
        seconds, text = Path(f"{folder}-said-{rank}").read_text().split("\n", 1)
        assert "Another rank was lost while saving the snapshot of step 2" in text
        assert float(seconds) < TIMEOUT_S
    found, passed_over = newest_good(folder)
    assert found is not None
    assert found.step == 1
    assert passed_over == []

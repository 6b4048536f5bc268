"""A run that keeps snapshots in memory only goes on from there after all its processes were killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import config, digest, events, loss_fn, losses, open_rank, samples
from torch import nn

from ranks import Context, Fault, Pool, RankFailed
from trainingkit.core.runfolder import RunFolder
from trainingkit.recovery import newest_good
from trainingkit.recovery.memory import folder_of_run
from trainingkit.trainer.kit import Kit

TOTAL = 9


def train(context: Context, folder: str, memory_every: int) -> dict[str, Any]:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 96), nn.Tanh(), nn.Linear(96, 96), nn.Dropout(0.1), nn.Linear(96, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    torch.manual_seed(2 + context.rank)
    settings = config(
        run={"steps": TOTAL},
        snapshot={"every": 0, "memory_every": memory_every},
        sync={"codec": "all|int4(block=64)", "islands": "off"},
    )
    data = torch.utils.data.Subset(samples(), range(context.rank, 48, context.world_size))
    loader = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)
    with Kit(open_rank(context, Path(folder)), model, optimizer, settings) as kit:
        for batch in kit.batches(loader):
            kit._keeper._snapshots.wait()
            context.at_step(kit.step_number + 1)
            kit.step(loss_fn, batch)
    return {"model": digest(model.state_dict()), "sync": digest(kit._engine.sync.state_dict())}


@pytest.mark.parametrize("later", [2, 0])
def test_killed_and_resumed_from_memory(pool: Pool, tmp_path: Path, later: int) -> None:
    """Also where the resumed run keeps none in memory any more."""
    straight = pool.run(train, 2, str(tmp_path / "straight"), 0)
    with pytest.raises(RankFailed):
        faults = [Fault(rank, 7, "kill") for rank in range(2)]
        pool.run(train, 2, str(tmp_path / "killed"), 2, faults=faults)
    run = RunFolder(tmp_path / "killed")
    assert newest_good(run.snapshots) == (None, [])
    memory = folder_of_run(run.snapshots)
    assert memory.is_dir()
    assert pool.run(train, 2, str(run.root), later) == straight
    told = [(step, text) for step, event, text in events(run.root) if event == "snapshot" and "memory" in text]
    text = "Snapshot of step 6 was put together from the hosts' memory: there was none on disk."
    assert told == [(6, text)]
    assert losses(run.root) == losses(tmp_path / "straight")
    assert not memory.exists(), "a run that has ended keeps no memory"

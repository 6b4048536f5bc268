"""resume == continue with residuals: through real snapshots of `Kit`, squeezed, in the warm-up and after it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import FEATURES, config, digest, losses, open_rank
from torch import nn

from ranks import Context, Pool
from trainingkit.trainer.kit import Kit

TOTAL = 8
INT4, TOPK = "all|int4(block=64)", "topk(density=0.05, chunk=4096)|int4"


def wide() -> nn.Module:
    """Two matrices that are squeezed, in buckets of their own; the rest is not."""
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Linear(FEATURES, 96), nn.Tanh(), nn.Linear(96, 96), nn.Tanh(), nn.Linear(96, 64), nn.Linear(64, 3)
    )


def samples(rank: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(100 + rank)
    made = []
    for index in range(5):
        x = torch.randn(3 + (rank + index) % 3, FEATURES, generator=generator)
        made.append((x, (x.sum(dim=1) > 0).long()))
    return made


def loss_fn(model: Any, batch: Any) -> torch.Tensor:
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def train_squeezed(context: Context, folder: str, codec: str, stop_at: int | None) -> dict[str, Any]:
    """Uneven batches, so that weights count; a stop as a step count that is reached early."""
    steps = TOTAL if stop_at is None else stop_at
    sync = {"codec": codec, "warmup_steps": 3, "bucket_mb": 0.02}
    settings = config(run={"steps": steps}, sync=sync, snapshot={"every": 2})
    model = wide()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    with Kit(open_rank(context, Path(folder)), model, optimizer, settings) as kit:
        for batch in kit.batches(samples(context.rank)):
            kit.step(loss_fn, batch)
        state = kit._engine.sync.state_dict()
        kit._engine.sync.close()
    answers = [values for name in sorted(state["answer"]) for _, values in state["answer"][name]]
    return {
        "model": digest(model.state_dict()),
        "optimizer": digest(optimizer.state_dict()),
        "own": digest(state["own"]),
        "answers": digest(answers),
        "steps": state["steps"],
        "owed": sum(float(residual.abs().sum()) for residual in state["own"].values()) > 0,
    }


@pytest.mark.parametrize("codec", [INT4, TOPK])
@pytest.mark.parametrize(("ranks", "stop_at"), [(2, 2), (2, 5), (3, 5)])
def test_a_squeezed_run_resumes_as_if_it_had_gone_on(
    pool: Pool, tmp_path: Path, ranks: int, stop_at: int, codec: str
) -> None:
    straight = pool.run(train_squeezed, ranks, str(tmp_path / "straight"), codec, None)
    pool.run(train_squeezed, ranks, str(tmp_path / "stopped"), codec, stop_at)
    resumed = pool.run(train_squeezed, ranks, str(tmp_path / "stopped"), codec, None)
    assert resumed == straight
    for rank in range(ranks):
        assert straight[rank]["steps"] == TOTAL and straight[rank]["owed"]
        assert straight[rank]["model"] == straight[0]["model"]
        assert losses(tmp_path / "stopped", rank) == losses(tmp_path / "straight", rank)

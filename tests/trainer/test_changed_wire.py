"""A run whose wire changes on resume goes on: same bits on all ranks, a loss that falls, residuals that still fit."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import FEATURES, config, digest, losses, open_rank
from torch import nn

from ranks import Context, Pool
from trainingkit.trainer.kit import Kit

BEGUN = {"codec": "all|int4(block=64)", "bucket_mb": 0.02}


def train(context: Context, folder: str, sync: dict[str, Any], steps: int) -> str:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(FEATURES, 96), nn.Tanh(), nn.Linear(96, 96), nn.Tanh(), nn.Linear(96, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    x = torch.randn(4, FEATURES, generator=torch.Generator().manual_seed(context.rank))
    with Kit(open_rank(context, Path(folder)), model, optimizer, config(run={"steps": steps}, sync=sync)) as kit:
        for batch in kit.batches([(x, (x.sum(dim=1) > 0).long())]):
            kit.step(lambda m, b: nn.functional.cross_entropy(m(b[0]), b[1]), batch)
    return digest(model.state_dict())


@pytest.mark.parametrize(
    "changed",
    [
        {"codec": "all|int8(block=64)"},
        {"codec": "all|int4(block=32)"},
        {"codec": "topk(density=0.05, chunk=4096)|int4", "warmup_steps": 2},
        {"codec": "none"},
        {"bucket_mb": 2.0},
        {"normalise": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("back", [False, True])
def test_a_changed_wire(pool: Pool, tmp_path: Path, changed: dict[str, Any], back: bool) -> None:
    before, after = ({**BEGUN, **changed}, BEGUN) if back else (BEGUN, {**BEGUN, **changed})
    first = pool.run(train, 3, str(tmp_path), before, 4)
    second = pool.run(train, 3, str(tmp_path), after, 8)
    assert len(set(first)) == len(set(second)) == 1 and first != second
    found = losses(tmp_path)
    assert sorted(found) == list(range(1, 9))
    values = [value for value in found.values() if value is not None and math.isfinite(value)]
    assert len(values) == 8 and values[7] < values[3] < values[0]

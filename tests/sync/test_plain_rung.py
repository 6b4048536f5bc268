"""The plain rung: DDP's own bits where weights are equal, the weighted mean where they are not, and no rank waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from squeezed_models import batch, digest, gradients, loss_of, net, squeezed, wrapped

from ranks import Context, Pool
from trainingkit.sync.auto.ladder import PLAIN, Rung
from trainingkit.sync.auto.moves import Move, write_move
from trainingkit.sync.piloting import AutoSettings

STEPS = 4


def on_plain(context: Context, folder: str, weights: list[list[float]]) -> dict[str, Any]:
    """Steps on the plain rung from the first one on; `weights` by step and rank."""
    path = Path(folder) / f"moves-{context.rank}.jsonl"
    write_move(path, Move(0, Rung(PLAIN), "begin"))
    ours, plain = net(), net()
    ddp, own = wrapped(ours), wrapped(plain)
    worst, seen, same = 0.0, [], True
    with squeezed(ddp, "auto", auto=AutoSettings(replay=path)) as sync:
        for step, of_step in enumerate(weights):
            sync.weight = of_step[context.rank]
            for model in (ddp, own):
                model.zero_grad()
                loss_of(model, batch(step, context.rank)).backward()
            for mine, expected in zip(gradients(ours), _means(step, of_step), strict=True):
                worst = max(worst, float((mine - expected).abs().max()))
            same &= digest(gradients(ours)) == digest(gradients(plain))
            seen.append(digest(gradients(ours)))
            sync.commit()
    return {"worst": worst, "seen": seen, "same": same}


def _means(step: int, weights: list[float]) -> list[torch.Tensor]:
    alone = []
    for rank in range(len(weights)):
        model = net()
        loss_of(model, batch(step, rank)).backward()
        alone.append([gradient.double() for gradient in gradients(model)])
    total = sum(weights)
    shares = torch.tensor([weight / total for weight in weights], dtype=torch.float64)
    return [torch.tensordot(shares, torch.stack(each), dims=1) for each in zip(*alone, strict=True)]


@pytest.mark.parametrize("ranks", [2, 3])
def test_equal_weights_are_ddp_bit_for_bit(pool: Pool, tmp_path: Path, ranks: int) -> None:
    ended = pool.run(on_plain, ranks, str(tmp_path), [[7.0] * ranks] * STEPS)
    assert all(one["same"] and one["seen"] == ended[0]["seen"] for one in ended)


@pytest.mark.parametrize(
    "weights",
    [
        [[1.0, 3.0, 2.0]] * STEPS,
        [[5.0, 5.0, 5.0], [5.0, 1.0, 5.0], [5.0, 5.0, 5.0], [2.0, 2.0, 2.0]],
        [[4.0, 4.0, 0.0], [4.0, 0.0, 4.0], [0.0, 4.0, 4.0], [4.0, 4.0, 4.0]],
    ],
    ids=["constant", "of one step", "zero"],
)
def test_unequal_weights_are_the_weighted_mean(pool: Pool, tmp_path: Path, weights: list[list[float]]) -> None:
    ended = pool.run(on_plain, 3, str(tmp_path), weights)
    assert all(one["seen"] == ended[0]["seen"] for one in ended)
    assert max(one["worst"] for one in ended) < 1e-6

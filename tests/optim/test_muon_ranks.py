"""Muon over DDP is Muon in one process, given the same gradients: bit for bit, on real Gloo ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from muon_nets import HIDDEN, ByHand, bits, loss_of, make, muon, state_bits
from torch.nn.parallel import DistributedDataParallel

from ranks import Context, Pool
from trainingkit.optim import SCHEDULES
from trainingkit.sync.doors import squeeze
from trainingkit.trainer.rate import RecipeRate

STEPS = 5
CODECS = ["none", "all|int4(block=64)"]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As many as the ranks have."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def over_ranks(context: Context, kind: str, codec: str) -> dict[str, Any]:
    """Train on this rank's batches.

    Returns:
        The agreed gradients of each step; hashes of the parameters after each, and of all state at the end.
    """
    torch.set_num_threads(1)
    model = make(kind)
    ddp = DistributedDataParallel(model, process_group=context.group)
    sync = squeeze(ddp, codec)
    optimizer = muon(model)
    rate = RecipeRate(optimizer, SCHEDULES.get("cosine")(warmup_steps=2), STEPS)
    gradients, after = [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        sync.begin()
        loss_of(model, step, context.rank, call=ddp).backward()
        gradients.append({n: p.grad.numpy().copy() for n, p in model.named_parameters() if p.grad is not None})
        optimizer.step()
        rate.step()
        sync.commit()
        after.append(bits(model))
    sync.close()
    return {"gradients": gradients, "after": after, "state": state_bits(model, optimizer)}


@pytest.mark.parametrize("kind", HIDDEN)
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("ranks", [2, 3])
def test_muon_over_ddp_is_muon_in_one_process(pool: Pool, ranks: int, codec: str, kind: str) -> None:
    results = pool.run(over_ranks, ranks, kind, codec)
    model, twin = make(kind), make(kind)
    optimizer, by_hand = muon(model), ByHand(twin, HIDDEN[kind])
    rate = RecipeRate(optimizer, SCHEDULES.get("cosine")(warmup_steps=2), STEPS)
    after = []
    for gradients in results[0]["gradients"]:
        for net in (model, twin):
            for name, parameter in net.named_parameters():
                parameter.grad = torch.from_numpy(gradients[name].copy())
        for group, same in zip(optimizer.param_groups, _groups(by_hand), strict=True):
            same["lr"] = group["lr"]
        optimizer.step()
        by_hand.step()
        rate.step()
        after.append(bits(model))
        assert bits(twin) == after[-1], "torch's own optimizers"
    assert len(set(after)) == STEPS
    for result in results:
        assert result["after"] == after
        assert result["state"] == state_bits(model, optimizer)


def _groups(by_hand: ByHand) -> list[dict[str, Any]]:
    return [*by_hand.muon.param_groups, *by_hand.adamw.param_groups]

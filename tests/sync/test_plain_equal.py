"""`none`, one rank and a detached hook are plain DDP, bit for bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from squeezed_models import INT4, TOPK, batch, digest, gradients, loss_of, net, squeezed, train, wrapped
from torch import nn

from ranks import Context, Pool
from trainingkit.sync.plain import PlainDDP, SingleProcess

STEPS = range(5)


def plain(context: Context, options: dict[str, Any], dtype: str = "float32") -> list[str]:
    model = net().to(getattr(torch, dtype))
    return _train(wrapped(model, **options), context)


def detached(context: Context, options: dict[str, Any], dtype: str = "float32") -> list[str]:
    model = net().to(getattr(torch, dtype))
    ddp = wrapped(model, **options)
    with squeezed(ddp) as sync:
        sync.detach()
        return _train(ddp, context)


def none(context: Context, options: dict[str, Any]) -> list[str]:
    ddp = wrapped(net(), **options)
    with squeezed(ddp, "none") as sync:
        assert type(sync) is PlainDDP
        ddp.register_comm_hook(None, _never)  # DDP takes one hook only: none was taken
        sync.module = wrapped(net(), **options)
        return _train(sync.module, context)


def _never(state, bucket):  # type: ignore[no-untyped-def]  # DDP reads the annotations
    raise AssertionError


def _train(ddp: nn.Module, context: Context) -> list[str]:
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    seen = []
    for step in STEPS:
        optimizer.zero_grad()
        x = batch(step, context.rank)
        loss_of(ddp, x.to(next(ddp.parameters()).dtype)).backward()
        optimizer.step()
        seen.append(digest([*gradients(ddp), *ddp.parameters()]))
    return seen


@pytest.mark.parametrize("ranks", [2, 3, 5])
@pytest.mark.parametrize("unused", [True, False])
def test_a_detached_hook_is_plain_ddp(pool: Pool, ranks: int, unused: bool) -> None:
    options = {"find_unused_parameters": unused}
    expected = pool.run(plain, ranks, options)
    assert pool.run(detached, ranks, options) == expected
    assert len(set(map(str, expected))) == 1, "all ranks agree"


def test_a_detached_hook_is_plain_ddp_in_bf16(pool: Pool) -> None:
    options = {"gradient_as_bucket_view": True}
    assert pool.run(detached, 3, options, "bfloat16") == pool.run(plain, 3, options, "bfloat16")


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_none_registers_no_hook(pool: Pool, ranks: int) -> None:
    assert pool.run(none, ranks, {}) == pool.run(plain, ranks, {})


def alone(context: Context) -> list[list[str]]:
    ddp, bare = wrapped(net()), net()
    with squeezed(ddp, TOPK) as sync:
        assert type(sync) is SingleProcess
        sync.detach()
        facts = sync.stats()
    assert facts["fp32_bytes"] == 0
    return [_train(ddp, context), _train(bare, context)]


def test_one_rank_is_plain_training(pool: Pool) -> None:
    [[wrapped_seen, bare_seen]] = pool.run(alone, 1)
    assert wrapped_seen == bare_seen


def leaves_in_mid_run(context: Context) -> list[Any]:
    """Squeezed for three steps, then detached; beside it plain DDP that starts from the same parameters."""
    ddp = wrapped(net())
    with squeezed(ddp, INT4) as sync:
        train(ddp, context, range(3))
        owed = sync.state_dict()
        copy = net()
        copy.load_state_dict(ddp.module.state_dict())
        sync.detach()
        after = train(ddp, context, range(3, 6))
        assert sync.state_dict()["detached"]
        kept = sync.state_dict()["own"]
        assert digest(kept) == digest(owed["own"])
        assert any(residual.any() for residual in kept.values())
    return [after, train(wrapped(copy), context, range(3, 6))]


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_hook_can_be_detached_in_mid_run(pool: Pool, ranks: int) -> None:
    for after, expected in pool.run(leaves_in_mid_run, ranks):
        assert after == expected

"""Nothing is lost: what was decoded plus what is still owed is the gradient, over 50 steps, to the last bit.

Two oracles. Gradients that are small integers, for which each fp32 operation of the codec and of the exchange is
exact, so that sums over steps can be compared with ==. And ordinary gradients, for which each single encode must keep
decoded + new residual == x + residual bit for bit, and the sums agree within the roundings in between.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from squeezed_models import INT4, TOPK, batch, loss_of, net, squeezed, wrapped
from torch import nn

from ranks import Context, Pool
from trainingkit.codec import Codec
from trainingkit.sync.residualstate import pending

STEPS = 50


class Linears(nn.Module):
    """Its loss is the inner product of parameters with what it is given, so the test chooses the gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.zeros(64, 80))
        self.second = nn.Parameter(torch.zeros(67, 91))
        self.third = nn.Parameter(torch.zeros(130, 70))
        self.bias = nn.Parameter(torch.zeros(33))
        self.head = nn.Linear(8, 5, bias=False)

    def forward(self, wanted: dict[str, torch.Tensor]) -> torch.Tensor:
        return torch.stack([(p * wanted[name]).sum() for name, p in self.named_parameters()]).sum()


def integers(model: nn.Module, step: int, rank: int) -> dict[str, torch.Tensor]:
    """Multiples of 1/8 up to 5: with the 8 bits of a bf16 scale, 50 steps of them fit into the 24 bits of fp32."""
    generator = torch.Generator().manual_seed(100 * step + rank)
    top = [24, 40][step % 2]
    return {n: torch.randint(-top, top + 1, p.shape, generator=generator) / 8.0 for n, p in model.named_parameters()}


def chosen_gradients(context: Context, codec: str) -> dict[str, Any]:
    ddp = wrapped(Linears())
    model = ddp.module
    given = {n: torch.zeros(p.numel(), dtype=torch.float64) for n, p in model.named_parameters()}
    got = {n: torch.zeros(p.numel(), dtype=torch.float64) for n, p in model.named_parameters()}
    with squeezed(ddp, codec, warmup_steps=7) as sync:
        for step in range(STEPS):
            wanted = integers(model, step, context.rank)
            ddp.zero_grad()
            ddp(wanted).backward()
            for name, parameter in model.named_parameters():
                assert parameter.grad is not None
                given[name] += wanted[name].double().flatten()
                got[name] += parameter.grad.double().flatten()
        state = sync.state_dict()
    return {"given": given, "got": got, "state": {"own": state["own"], "answer": state["answer"]}}


def _owed_and_lost(ended: list[dict[str, Any]]) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    owed = pending([one["state"] for one in ended])
    ranks = len(ended)
    lost = {}
    for name, got in ended[0]["got"].items():
        assert all(torch.equal(one["got"][name], got) for one in ended)
        lost[name] = sum(one["given"][name] for one in ended) / ranks - got - owed[name]
    return owed, lost


@pytest.mark.parametrize("codec", [INT4, TOPK, "all|int8(block=64)"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_sums_are_kept_exactly_where_fp32_is_exact(pool: Pool, ranks: int, codec: str) -> None:
    """1/N is a power of two here, and scales are bf16: products of few bits, so no operation rounds."""
    owed, lost = _owed_and_lost(pool.run(chosen_gradients, ranks, codec))
    assert any(values.any() for values in owed.values()), "something is owed, or the test says nothing"
    for name, values in lost.items():
        assert not values.any(), name


@pytest.mark.parametrize("codec", [INT4, TOPK])
def test_three_ranks_lose_only_the_rounding_of_one_third(pool: Pool, codec: str) -> None:
    """Times 1/3 rounds once per element and step: half a unit in the last place of a mean of at most 16."""
    _, lost = _owed_and_lost(pool.run(chosen_gradients, 3, codec))
    for name, values in lost.items():
        assert values.abs().max() <= STEPS * 16 * 2.0**-24, name


class Watched(Codec):
    """Checks each encode: what the message says plus the new residual is x plus the old one, bit for bit."""

    checks = 0

    def encode(self, x: Any, residual: Any, message: Any, new_residual: Any) -> bool:
        owed = torch.zeros_like(x) if residual is None else residual
        total = x + owed
        finite = super().encode(x, residual, message, new_residual)
        said = torch.empty_like(x)
        self.decode(message, said)
        assert torch.equal(said + new_residual, total)
        assert torch.equal(said.double() + new_residual.double(), total.double())
        Watched.checks += 1
        return finite


def watched_training(context: Context, codec: str) -> dict[str, Any]:
    from trainingkit.sync import doors

    doors.Codec, before = Watched, doors.Codec
    Watched.checks = 0
    try:
        ddp = wrapped(net())
        names = dict(ddp.module.named_parameters())
        given = {n: torch.zeros(p.numel(), dtype=torch.float64) for n, p in names.items()}
        got = {n: torch.zeros(p.numel(), dtype=torch.float64) for n, p in names.items()}
        mirror = net()
        with squeezed(ddp, codec, warmup_steps=5) as sync:
            for step in range(STEPS):
                mirror.zero_grad()
                loss_of(mirror, batch(step, context.rank)).backward()
                ddp.zero_grad()
                loss_of(ddp, batch(step, context.rank)).backward()
                for (name, parameter), own in zip(names.items(), mirror.parameters(), strict=True):
                    assert parameter.grad is not None and own.grad is not None
                    given[name] += own.grad.double().flatten()
                    got[name] += parameter.grad.double().flatten()
            state = sync.state_dict()
        assert Watched.checks >= STEPS * len(names) // 10
    finally:
        doors.Codec = before
    return {"given": given, "got": got, "state": {"own": state["own"], "answer": state["answer"]}}


@pytest.mark.parametrize("codec", [INT4, TOPK])
@pytest.mark.parametrize("ranks", [2, 3])
def test_every_encode_keeps_every_bit(pool: Pool, ranks: int, codec: str) -> None:
    ended = pool.run(watched_training, ranks, codec)
    _, lost = _owed_and_lost(ended)
    for name, values in lost.items():
        size = sum(one["given"][name].abs().max() for one in ended) / STEPS
        assert values.abs().max() <= 64 * STEPS * size * 2.0**-24 + 1e-9, name

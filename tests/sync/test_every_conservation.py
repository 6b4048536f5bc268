"""Nothing is lost: what came into the agreed model plus what is owed is what the workers did, element by element."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from every_runs import agreed, apart, sgd
from squeezed_models import INT4, TOPK, digest
from test_conservation import Linears
from torch import nn

from ranks import Context, Pool
from trainingkit.sync.every.handover import final_model, owed, redistribute
from trainingkit.sync.every.state import landed

STEPS = 13


def moves(model: torch.nn.Module, step: int, rank: int) -> list[torch.Tensor]:
    """How far each parameter goes in a step: multiples of 1/8, so that fp32 need not round sums of them."""
    generator = torch.Generator().manual_seed(100 * step + rank)
    return [torch.randint(-9, 10, p.shape, generator=generator) / 8.0 for p in model.parameters()]


def chosen_moves(context: Context, text: str, weights: list[float], steps: int) -> dict[str, Any]:
    model = nn.Sequential(Linears(), Linears(), Linears())
    for p in model.parameters():
        nn.init.zeros_(p)
    start = {name: p.detach().flatten().double() for name, p in model.named_parameters()}
    gone = {name: torch.zeros_like(flat) for name, flat in start.items()}
    optimizer = sgd(model)
    bits = []
    with apart(context, model, optimizer, text) as sync:
        sync.weight = weights[context.rank]
        for step in range(steps):
            for (name, p), move in zip(model.named_parameters(), moves(model, step, context.rank), strict=True):
                with torch.no_grad():
                    p.sub_(move)
                gone[name] += move.flatten().double()
            sync.commit()
            bits.append(digest(agreed(sync)) if step % 5 == 0 else "")
        state = sync.state_dict()
        stats = sync.stats()
    return {"start": start, "gone": gone, "state": state, "bits": bits, "stats": stats}


def lost(ended: list[dict[str, Any]], shares: list[float]) -> dict[str, torch.Tensor]:
    """What the workers went, less what the agreed model went and what is owed."""
    missing = owed([one["state"] for one in ended])
    now = ended[0]["state"]["agreed"]["parameters"]
    found = {}
    for name, start in ended[0]["start"].items():
        went = sum(share * one["gone"][name] for share, one in zip(shares, ended, strict=True))
        found[name] = went - (start - now[name].double()) - missing[name]
    return found


TEXTS = [
    f"every(3)|{INT4}",
    f"every(1)|{TOPK}",
    f"every(4, delay=1)|{INT4}",
    f"every(5, tau=2)|{TOPK}",
    f"every(4, fragments=3)|{INT4}",
    f"every(4, fragments=2, delay=1)|{TOPK}",
    "every(3)|none",
]


@pytest.mark.parametrize(("ranks", "text"), [*((2, text) for text in TEXTS), *((4, text) for text in TEXTS[2:4])])
def test_all_that_workers_did_is_agreed_or_owed(pool: Pool, ranks: int, text: str) -> None:
    """1/N is a power of two and scales are bf16; what is rounded are differences to a model of many bits."""
    ended = pool.run(chosen_moves, ranks, text, [1.0] * ranks, STEPS)
    assert all(one["bits"] == ended[0]["bits"] for one in ended), "the agreed model is the same bits on all ranks"
    for name, values in lost(ended, [1 / ranks] * ranks).items():
        assert not values.any(), name
    owes = any(values.any() for values in ended[0]["state"]["update"]["own"].values())
    assert owes == ("none" not in text), "something is owed, or the test says nothing"


@pytest.mark.parametrize("weights", [[1.0, 3.0], [5.0, 0.0, 11.0]])
def test_workers_count_by_their_weight(pool: Pool, weights: list[float]) -> None:
    """Dense, so that nothing is owed: the agreed model goes where the weighted mean of the workers goes."""
    ended = pool.run(chosen_moves, len(weights), "every(4)|none", weights, 8)
    shares = [weight / sum(weights) for weight in weights]
    for name, values in lost(ended, shares).items():
        assert values.abs().max() < 1e-5, name
        assert (lost(ended, [1 / len(weights)] * len(weights))[name]).abs().max() > 0.1 or "head" in name


def test_what_decays_is_counted(pool: Pool) -> None:
    """Of each residual a tenth is lost in each round: the meter says how much that was in all, by magnitude."""
    text = f"every(2, decay=0.9)|{TOPK}"
    first = pool.run(chosen_moves, 2, text, [1.0, 1.0], 2)
    for one in first:
        left = sum(float(values.double().abs().sum()) for values in one["state"]["update"]["own"].values())
        assert one["stats"]["decayed"] == pytest.approx(left / 0.9 * 0.1, rel=1e-4)
    assert any(values.any() for values in lost(first, [0.5, 0.5]).values())
    for before, after in zip(first, pool.run(chosen_moves, 2, text, [1.0, 1.0], 4), strict=True):
        assert after["stats"]["decayed"] > before["stats"]["decayed"]


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (2, 4, f"every(4, delay=1)|{TOPK}"),
        (4, 1, f"every(4, delay=1)|{TOPK}"),
        (4, 2, f"every(5, outer_lr=0.5)|{INT4}"),
    ],
)
def test_another_number_of_ranks_owes_the_same(pool: Pool, text: str, before: int, after: int) -> None:
    """In the middle of a round: residuals, answers and the steps since the last round, and what flies is applied."""
    ended = pool.run(chosen_moves, before, text, [float(rank + 1) for rank in range(before)], 7)
    states = [one["state"] for one in ended]
    new = redistribute(states, alone=after == 1)
    missing, now = owed([landed(state) for state in states]), owed([new] * after)
    for name, values in missing.items():
        assert (now[name] - values).abs().max() < 1e-5, name
        assert not new["agreed"]["mean"] and not new["launched"]
        assert after == 1 or torch.equal(new["local"][name], new["agreed"]["parameters"][name])
    final = final_model(states)
    rate = 0.5 if "0.5" in text else 1.0
    for name, agreed_ in landed(states[0])["agreed"]["parameters"].items():
        assert (final[name].double() - (agreed_.double() - rate * missing[name])).abs().max() < 1e-5

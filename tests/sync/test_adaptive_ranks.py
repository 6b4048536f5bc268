"""Buckets that choose their own numbers, on real ranks: one choice everywhere, no more bytes, nothing lost."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from squeezed_models import digest, gradients, squeezed, wrapped
from torch import nn

from ranks import Context, Pool
from trainingkit.recovery.jsonstate import dumps, loads
from trainingkit.recovery.treestate import attach_tensors, detach_tensors
from trainingkit.sync.auto.adaptive import FIRST_STEPS, RENEW_STEPS, Choice
from trainingkit.sync.residualstate import pending, state_in

INT2, INT3, INT4 = "all|int2(block=256)", "all|int3(block=64)", "all|int4(block=64)"
SHAPES = {"first": (96, 160), "second": (120, 128), "third": (64, 240)}
GROWTH = {"first": 1.3, "second": 1.0, "third": 1.0 / 1.3}
"""Of each matrix's gradients in a step: those that grow are large in units of what they were."""
TURN = 12
"""From this step on it is the other way round."""
STEPS = RENEW_STEPS + 4
ADAPTIVE = {"adaptive": True, "normalise": True, "warmup_steps": 0}


class Chosen(nn.Module):
    """Its gradients are what it is given: three matrices, each a bucket, and a vector and a head that are exempt."""

    def __init__(self) -> None:
        super().__init__()
        for name, shape in SHAPES.items():
            self.register_parameter(name, nn.Parameter(torch.zeros(shape)))
        self.bias = nn.Parameter(torch.zeros(33))
        self.head = nn.Linear(2, 2, bias=False)

    def forward(self, wanted: dict[str, torch.Tensor]) -> torch.Tensor:
        products = [(parameter * wanted[name]).sum() for name, parameter in self.named_parameters() if name in wanted]
        return torch.stack([*products, 0.0 * self.head.weight.sum()]).sum()


def wanted(step: int, rank: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(100 * step + rank)
    turns = step if step < TURN else 2 * TURN - step
    found = {name: GROWTH[name] ** turns * torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}
    return {**found, "bias": torch.randn(33, generator=generator)}


def stepped(ddp: nn.Module, sync: Any, step: int, rank: int, *, taken: bool = True) -> int:
    """One step; the bytes that this rank sent."""
    ddp.zero_grad()
    ddp(wanted(step, rank)).backward()
    return (sync.commit() if taken else sync.abort()).wire_bytes


def run_of(context: Context, codec: str, options: dict[str, Any]) -> dict[str, Any]:
    ddp, choices, sent, seen = wrapped(Chosen()), list[Choice](), [], []
    got = {name: torch.zeros(shape, dtype=torch.float64) for name, shape in SHAPES.items()}
    with squeezed(ddp, codec, **options) as sync:
        sync.values.on_choice = choices.append
        for step in range(STEPS):
            sent.append(stepped(ddp, sync, step, context.rank))
            seen.append(digest(gradients(ddp)))
            for name, total in got.items():
                grad = dict(ddp.module.named_parameters())[name].grad
                assert grad is not None
                total.add_(grad.double())
        state, facts = sync.state_dict(), sync.describe()
    return {"choices": choices, "sent": sent, "seen": seen, "got": got, "state": state, "facts": facts}


@pytest.mark.parametrize("ranks", [2, 3])
def test_all_ranks_choose_alike_in_no_more_bytes_and_lose_nothing(pool: Pool, ranks: int) -> None:
    plain, own = (pool.run(run_of, ranks, INT3, {**ADAPTIVE, "adaptive": adaptive}) for adaptive in (False, True))
    assert all(one["choices"] == own[0]["choices"] and one["seen"] == own[0]["seen"] for one in own)
    assert all(
        most >= sent
        for one, other in zip(plain, own, strict=True)
        for most, sent in zip(one["sent"], other["sent"], strict=True)
    )
    owed = pending([state_in(one["state"]) for one in own])
    for name in SHAPES:
        each = [wanted(step, rank)[name].double() for step in range(STEPS) for rank in range(ranks)]
        given = torch.stack(each).sum(0)
        lost = given.flatten() / ranks - own[0]["got"][name].flatten() - owed[name]
        assert lost.abs().max() < 1e-6 * STEPS * max(each_step.abs().max() for each_step in each), name
    steps = [choice.step for choice in own[0]["choices"]]
    assert steps == [FIRST_STEPS, RENEW_STEPS]
    before, after = (choice.codecs for choice in own[0]["choices"])
    assert before == {"first": INT4, "second": INT3, "third": INT2}
    assert (after["third"], sorted(after.values())) == (INT4, [INT2, INT3, INT4])
    assert own[0]["facts"]["adaptive"] == {INT4: 1, INT3: 1, INT2: 1}
    assert "of the expected error of all|int3(block=64) in all buckets" in own[0]["choices"][0].reason


def continued(context: Context, stop_at: int) -> dict[str, Any]:
    """A run that goes through, and one that goes on in a fresh DDP and Sync from the state's stored form."""
    ddp = wrapped(Chosen())
    with squeezed(ddp, INT3, **ADAPTIVE) as sync:
        for step in range(stop_at):
            stepped(ddp, sync, step, context.rank)
        tensors, plain = detach_tensors(sync.state_dict(), "sync")
        stored = loads(dumps(plain, where="sync"), where="sync"), {n: t.clone() for n, t in tensors.items()}
        model = copy.deepcopy(ddp.module)
        straight = [(stepped(ddp, sync, step, context.rank), digest(gradients(ddp))) for step in range(stop_at, STEPS)]
        end = sync.state_dict()
    fresh = wrapped(model)
    with squeezed(fresh, INT3, **ADAPTIVE) as sync:
        sync.load_state_dict(attach_tensors(*stored))
        assert sync.state_dict()["values"] == stored[0]["values"]
        again = [(stepped(fresh, sync, step, context.rank), digest(gradients(fresh))) for step in range(stop_at, STEPS)]
        other = sync.state_dict()
    return {"straight": straight, "again": again, "values": [end["values"], other["values"]]}


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_continued_run_is_the_same_bit_for_bit(pool: Pool, ranks: int) -> None:
    for one in pool.run(continued, ranks, FIRST_STEPS + 4):
        assert one["straight"] == one["again"]
        assert one["values"][0] == one["values"][1]
        assert len({codec for _, _, codec in one["values"][0]["chosen"]}) == 3


def given_up(context: Context) -> list[Any]:
    """States with and without a step in between that was given up, at a step that is looked at."""
    states = []
    for extra in (0, 1):
        ddp = wrapped(Chosen())
        with squeezed(ddp, INT3, **ADAPTIVE) as sync:
            for step in range(16):
                stepped(ddp, sync, step, context.rank)
            for _ in range(extra):
                stepped(ddp, sync, 77, context.rank, taken=False)
            states.append(sync.state_dict()["values"])
    return states


def test_a_step_that_is_given_up_is_not_looked_at(pool: Pool) -> None:
    before, after = pool.run(given_up, 2)[0]
    assert before == after
    assert before["known"]

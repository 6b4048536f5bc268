"""The last round of a run, and what comes after `detach`: no agreed step is lost without a word."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from every_runs import adamw, agreed, apart, fresh, local_step, sgd, walk
from hearing import hearing
from squeezed_models import INT4, batch, digest, loss_of
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import trainingkit as tk
from ranks import Context, Pool
from trainingkit.sync.contract import trains_apart_now

H = 3
GIVEN_UP = "A round was given up on all ranks: a sum was not finite. It is made again."


def spoilt(context: Context, text: str, steps: int) -> dict[str, Any]:
    """On rank 1 a residual breaks before the last round of the loop."""
    model = fresh()
    optimizer = sgd(model)
    with apart(context, model, optimizer, text) as sync, hearing() as heard:
        residuals = sync.fragments[0].parcels[0].carried[0].residuals
        begun = torch.cat([p.detach().flatten().clone() for p in model.parameters()])
        walk(sync, optimizer, context, range(H - 1))
        if context.rank == 1:
            residuals.own.fill_(math.inf)
        walk(sync, optimizer, context, range(H - 1, steps))
        own = torch.cat([p.detach().flatten().clone() for p in model.parameters()])
        moved = [sync.settle(), sync.settle()]
        end = torch.cat([p.detach().flatten() for p in model.parameters()])
        owed = sum(float(values.abs().sum()) for values in sync.state_dict()["update"]["own"].values())
        return {"moved": moved, "begun": begun, "own": own, "end": end, "heard": heard, "owed": owed}


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        (f"every({H})|{INT4}", H),
        (f"every({H}, tau=1)|{INT4}", H),
        (f"every({H}, tau=1)|{INT4}", H + 1),
        (f"every({H}, delay=1)|{INT4}", H),
        (f"every({H}, delay=1)|{INT4}", H + 2),
        (f"every({H}, fragments=2)|{INT4}", H),
    ],
)
def test_a_round_given_up_at_the_end_is_made_again(pool: Pool, text: str, steps: int) -> None:
    """Whether it was on its way, or had just come back; all of what ranks did is in the model."""
    one, other = pool.run(spoilt, 2, text, steps)
    assert torch.equal(one["end"], other["end"])
    assert one["moved"] == [True, False]
    assert GIVEN_UP in one["heard"] and not any("not in the model" in line for line in one["heard"])
    assert not any("owed no more" in line for line in one["heard"])
    assert any(line.endswith("residuals were not finite and are owed no more") for line in other["heard"])
    assert math.isfinite(other["owed"])
    went = (one["own"] + other["own"]) / 2.0 - one["begun"]
    assert (one["end"] - one["begun"] - went).norm() <= 0.2 * went.norm()


def hopeless(context: Context) -> dict[str, Any]:
    """Differences so large that their sum is not finite, however often it is made."""
    model = fresh()
    optimizer = sgd(model)
    with apart(context, model, optimizer, "every(2)|none") as sync, hearing() as heard:
        before = digest(agreed(sync))
        for step in range(3):
            local_step(model, optimizer, step, context.rank)
            if step == 2:
                next(model.parameters()).data.fill_(-3e38)
            sync.commit()
            before = digest(agreed(sync)) if step == 1 else before
        sync.settle()
        own = {name: p.detach().flatten() for name, p in model.named_parameters()}
        return {"kept": digest(agreed(sync)) == before == digest(own), "heard": heard}


def test_steps_that_no_round_can_carry_are_lost_by_name(pool: Pool) -> None:
    for one in pool.run(hopeless, 2):
        assert one["kept"]
        assert one["heard"][:2] == [GIVEN_UP] * 2
        assert one["heard"][2].startswith("The last round was given up 2 times, so the last 1 steps of all ranks are ")
        assert len(one["heard"]) == 3


def resumed_after_one(context: Context) -> bool:
    """A state that is taken after a round was given up knows of its steps."""
    ends = []
    for cut in (False, True):
        model = fresh()
        optimizer = sgd(model)
        with apart(context, model, optimizer, f"every({H})|{INT4}") as sync:
            residuals = sync.fragments[0].parcels[0].carried[0].residuals
            if context.rank == 1:
                residuals.own.fill_(math.inf)
            walk(sync, optimizer, context, range(H))
            if cut:
                sync.load_state_dict(sync.state_dict())
            assert sync.settle()
        ends.append(digest(list(model.parameters())))
    return ends[0] == ends[1] != digest(list(fresh().parameters()))


def test_a_state_knows_of_a_round_that_was_given_up(pool: Pool) -> None:
    assert pool.run(resumed_after_one, 2) == [True, True]


def left(context: Context, resumes: bool) -> dict[str, Any]:
    """Detached after four steps, then DDP: settling, evaluating and saving must not bring the old model back."""
    model = fresh()
    module = DistributedDataParallel(model)
    optimizer = adamw(model)
    sync: Any = tk.compress(module, f"every({H})|{INT4}", optimizer=optimizer)
    same = []
    for step in range(9):
        if step == 4:
            assert trains_apart_now(sync)
            sync.detach()
        if step == 6 and resumes:
            state = sync.state_dict()
            sync.close()
            sync = tk.compress(module, f"every({H})|{INT4}", optimizer=optimizer)
            sync.load_state_dict(state)
        local_step(module, optimizer, step, context.rank)
        sync.commit()
        same.append(digest(list(model.parameters())))
    now = digest(list(model.parameters()))
    with sync.agreed_weights():
        evaluated = digest(list(model.parameters()))
    saved = digest([sync.state_dict()["agreed"]["parameters"][name] for name, _ in model.named_parameters()])
    flat = digest([p.detach().flatten() for p in model.parameters()])
    settled = sync.settle()
    kept = [evaluated == now, saved == flat, not settled, digest(list(model.parameters())) == now]
    return {"same": same, "kept": kept, "apart": trains_apart_now(sync), "sent": sync.stats()["steps"]}


@pytest.mark.parametrize("resumes", [False, True])
def test_after_detach_the_model_is_ddps(pool: Pool, resumes: bool) -> None:
    one, other = pool.run(left, 2, resumes)
    assert [a == b for a, b in zip(one["same"], other["same"], strict=True)][4:] == [True] * 5
    for each in (one, other):
        assert each["kept"] == [True] * 4 and not each["apart"] and each["sent"] == 4


class Branched(nn.Module):
    """A layer that only the batches of some ranks pass."""

    def __init__(self) -> None:
        super().__init__()
        self.main = fresh()
        self.side = nn.Linear(48, 5)

    def forward(self, x: torch.Tensor, *, aside: bool) -> torch.Tensor:
        found = self.main(x)
        return found + self.side(x) if aside else found


def leaves_branches(context: Context) -> list[str]:
    torch.manual_seed(2)
    model = Branched()
    module = DistributedDataParallel(model, find_unused_parameters=True)
    optimizer = sgd(model)
    sync: Any = tk.compress(module, f"every({H})|{INT4}", optimizer=optimizer)
    seen = []
    for step in range(6):
        if step == 3:
            sync.detach()
        optimizer.zero_grad()
        x = batch(step, context.rank)
        loss_of(lambda y, aside=step < 3: module(y, aside=aside), x).backward()  # pyright: ignore[reportArgumentType]
        optimizer.step()
        seen.append(digest(list(model.parameters())))
    sync.close()
    return seen


def test_ddp_does_not_wait_for_layers_that_were_used_before(pool: Pool) -> None:
    one, other = pool.run(leaves_branches, 2)
    assert one[2:] == other[2:]

"""Optimizers that differ between ranks become one, or are refused on all ranks alike; no rank waits for another."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from squeezed_models import batch, digest, net, wrapped
from torch import nn

from ranks import Context, Pool
from trainingkit.core.errors import StepError
from trainingkit.sync.auto.ladder import START, Rung
from trainingkit.sync.auto.moves import Move, write_move
from trainingkit.sync.doors import squeeze
from trainingkit.sync.every.moments import agree_on_moments
from trainingkit.sync.piloting import AutoSettings

CPU = torch.device("cpu")
MOVES = [Move(0, Rung(START), "begin"), Move(1, Rung(START, every=4, tau=4), "test"), Move(4, Rung(START), "test")]


def stepped(rank: int, seen_on: int, make: Callable[[Any], torch.optim.Optimizer]) -> torch.optim.Optimizer:
    """Two steps on two parameters; the first has gradients on one rank only."""
    parameters = [nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(2, 2))]
    optimizer = make(parameters)
    for step in range(2):
        for parameter in parameters if rank == seen_on else parameters[1:]:
            parameter.grad = torch.full_like(parameter, 1.0 + rank + step)
        optimizer.step()
    return optimizer


def optimizers() -> dict[str, Callable[[Any], torch.optim.Optimizer]]:
    return {
        "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, amsgrad=True),
        "sgd": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
        "nadam": lambda p: torch.optim.NAdam(p, lr=0.01),
        "adafactor": lambda p: torch.optim.Adafactor(p, lr=0.01),
        "rprop": lambda p: torch.optim.Rprop(p, lr=0.01),
    }


def made_one(context: Context, name: str, seen_on: int) -> dict[str, Any]:
    optimizer = stepped(context.rank, seen_on, optimizers()[name])
    before = [{key: _copy(value) for key, value in state.items()} for state in _states(optimizer)]
    agree_on_moments(optimizer, context.group, CPU)
    return {"before": before, "after": [dict(state) for state in _states(optimizer)]}


def _states(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    return [optimizer.state.get(p, {}) for group in optimizer.param_groups for p in group["params"]]


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


@pytest.mark.parametrize("name", sorted(optimizers()))
@pytest.mark.parametrize("seen_on", [0, 1, 2])
def test_a_state_that_a_rank_lacks_counts_as_zeros(pool: Pool, name: str, seen_on: int) -> None:
    """Whichever rank it is that has one; its counters are everybody's."""
    ended = pool.run(made_one, 3, name, seen_on)
    only, shared = ended[seen_on]["before"]
    assert only and not ended[(seen_on + 1) % 3]["before"][0], "the test says something"
    for one in ended:
        assert one["after"][0].keys() == {key for key, value in only.items() if value is not None}
        for key, value in one["after"][0].items():
            wanted = only[key] / 3 if value.dim() else only[key]
            torch.testing.assert_close(value, wanted, rtol=2**-7, atol=0.0)
        for key, value in one["after"][1].items():
            assert torch.equal(value, ended[0]["after"][1][key])
            if value.dim():
                mean = sum(other["before"][1][key] for other in ended) / 3
                torch.testing.assert_close(value, mean, rtol=2**-6, atol=0.0)
    assert shared


def changed(context: Context, case: str) -> dict[str, Any]:
    """Rank 1's optimizer is another one than rank 0's, in one way or the other."""
    optimizer = stepped(context.rank, 0, lambda p: torch.optim.AdamW(p, lr=0.01))
    shared = optimizer.param_groups[0]["params"][1]
    if context.rank == 1 and case == "groups":
        optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2))]})
    if context.rank == 1 and case == "shapes":
        optimizer.param_groups[0]["params"][0] = nn.Parameter(torch.ones(4))
    if context.rank == 1 and case == "kinds":
        optimizer.state[shared]["exp_avg"] = torch.ones(7)
    if context.rank == 1 and case == "lists":
        optimizer.state[shared]["old_steps"] = [torch.ones(2)]
    try:
        agree_on_moments(optimizer, context.group, CPU)
    except StepError as error:
        return {"text": str(error)}
    return {"text": ""}


@pytest.mark.parametrize(
    ("case", "texts"),
    [
        ("groups", ["over other parameters", "2 parameters in 1 groups on rank 0, 3 parameters in 2 groups on rank 1"]),
        ("shapes", ["The optimizers of rank 0 and rank 1 are over other parameters.", "of other shapes"]),
        ("kinds", ["state[1].exp_avg", "[2, 2] float32 on rank 0, [7] float32 on rank 1", "sync.max_every = 1"]),
        (
            "lists",
            ["Ranks cannot agree on what the optimizer keeps.", "state[1].old_steps", ":     list on rank 1"],
        ),
    ],
)
def test_what_cannot_be_agreed_on_is_refused_on_all_ranks(pool: Pool, case: str, texts: list[str]) -> None:
    ended = pool.run(changed, 2, case)
    assert ended[0] == ended[1]
    for text in texts:
        assert text in ended[0]["text"]


def quantised(context: Context) -> list[torch.Tensor]:
    """Codes and what they are multiplied by: means of either alone would say nothing."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(4))], lr=0.1)
    state = optimizer.state[optimizer.param_groups[0]["params"][0]]
    state["codes"] = torch.arange(4, dtype=torch.uint8) + context.rank
    state["scale"] = torch.full((2,), 1.0 + context.rank)
    agree_on_moments(optimizer, context.group, CPU)
    return [state["codes"], state["scale"]]


def test_a_state_of_codes_is_taken_whole(pool: Pool) -> None:
    for codes, scale in pool.run(quantised, 2):
        assert codes.tolist() == [0, 1, 2, 3] and scale.tolist() == [1.0, 1.0]


def settings(context: Context) -> dict[str, Any]:
    heard: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: heard.append(record.getMessage())
    logging.getLogger("trainingkit").addHandler(handler)
    lr = torch.tensor(0.25 * (1 + context.rank))
    groups = [{"params": [nn.Parameter(torch.ones(2))]}, {"params": [nn.Parameter(torch.ones(2))], "lr": lr}]
    optimizer = torch.optim.AdamW(groups, lr=0.01 * (1 + context.rank), foreach=False)
    optimizer.param_groups[1]["weight_decay"] = 0.5 * context.rank
    agree_on_moments(optimizer, context.group, CPU)
    logging.getLogger("trainingkit").removeHandler(handler)
    found = [(float(group["lr"]), group["weight_decay"]) for group in optimizer.param_groups]
    return {"found": found, "heard": heard, "is_tensor": optimizer.param_groups[1]["lr"] is lr}


def test_settings_that_differ_are_rank_0s(pool: Pool) -> None:
    """As where each rank's schedule followed its own loss."""
    first, second = pool.run(settings, 2)
    assert first["found"] == second["found"] == [(0.01, 0.01), (0.25, 0.0)]
    assert second["is_tensor"] and first["heard"] == []
    assert sorted(second["heard"]) == [
        "group 0 of the optimizer goes on with rank 0's lr, 0.01",
        "group 1 of the optimizer goes on with rank 0's lr, 0.25",
        "group 1 of the optimizer goes on with rank 0's weight_decay, 0.0",
    ]


class Branched(nn.Module):
    """A layer of its own that only some batches pass."""

    def __init__(self) -> None:
        super().__init__()
        self.main = net()
        self.side = nn.Linear(48, 5)

    def forward(self, x: torch.Tensor, *, aside: bool) -> torch.Tensor:
        found = self.main(x)
        return found + self.side(x) if aside else found


def branches(context: Context, folder: str, aside_on: int) -> dict[str, Any]:
    path = Path(folder) / f"decisions-{context.rank}.jsonl"
    for move in MOVES:
        write_move(path, move)
    torch.manual_seed(3)
    model = Branched()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    sync: Any = squeeze(wrapped(model), "auto", auto=AutoSettings(replay=path), optimizer=optimizer)
    kept = []
    for number in range(7):
        optimizer.zero_grad()
        x = batch(number, context.rank)
        loss = (sync.module(x, aside=0 < number < 4 and context.rank == aside_on) - x[:, :5]).square().mean()
        loss.backward()
        optimizer.step()
        kept.append(model.side.weight in optimizer.state)
        sync.commit()
    sync.close()
    values = [state[key] for state in _states(optimizer) for key in sorted(state)]
    return {"kept": kept, "model": digest(list(model.parameters())), "moments": digest(values)}


@pytest.mark.parametrize("aside_on", [0, 1])
def test_a_layer_that_one_rank_alone_has_used_is_brought_back(pool: Pool, aside_on: int, tmp_path: Path) -> None:
    ended = pool.run(branches, 2, str(tmp_path), aside_on)
    assert ended[aside_on]["kept"] == [False] + [True] * 6
    assert ended[1 - aside_on]["kept"] == [False] * 4 + [True] * 3
    assert ended[0]["model"] == ended[1]["model"] and ended[0]["moments"] == ended[1]["moments"]

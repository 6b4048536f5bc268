"""Loops that change their optimizer's groups while ranks train apart, or leave for good while they do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from squeezed_models import batch, digest, loss_of, net, wrapped

from ranks import Context, Pool
from trainingkit.core.errors import StepError
from trainingkit.sync.auto.ladder import START, Rung
from trainingkit.sync.auto.moves import Move, write_move
from trainingkit.sync.contract import trains_apart_now
from trainingkit.sync.doors import squeeze
from trainingkit.sync.going.switch import Going
from trainingkit.sync.piloting import AutoSettings

TWO, FOUR = Rung(START, every=2, tau=1), Rung(START, every=4, tau=4)
MOVES = [Move(0, Rung(START), "begin"), Move(2, FOUR, "test"), Move(8, TWO, "test"), Move(12, Rung(START), "test")]


def made(context: Context, folder: str, model: Any, parameters: Any, moves: list[Move]) -> tuple[Any, Going]:
    path = Path(folder) / f"decisions-{context.rank}.jsonl"
    path.unlink(missing_ok=True)
    for move in moves:
        write_move(path, move)
    optimizer = torch.optim.AdamW(parameters, lr=0.01)
    sync = squeeze(wrapped(model), "auto", auto=AutoSettings(replay=path), optimizer=optimizer)
    assert isinstance(sync, Going)
    return optimizer, sync


def step(optimizer: Any, sync: Any, number: int, rank: int) -> None:
    optimizer.zero_grad()
    loss_of(sync.module, batch(number, rank)).backward()
    optimizer.step()
    sync.commit()


def regrouped(context: Context, folder: str, alone: bool) -> dict[str, Any]:
    """The last layer joins the optimizer in mid-flight, rates change, a layer is frozen; back at step 12."""
    model: Any = net()
    optimizer, sync = made(context, folder, model, list(model[:9].parameters()), MOVES)
    same: list[str] = []
    try:
        for number in range(15):
            if number == 5 and (context.rank == 0 or not alone):
                optimizer.add_param_group({"params": list(model[9].parameters()), "lr": 0.05})
            if number == 6:
                optimizer.param_groups[0]["lr"] = 0.002 * (1 + context.rank)
                optimizer.param_groups[0]["weight_decay"] = 0.1
            if number == 7:
                model[0].requires_grad_(False)
            step(optimizer, sync, number, context.rank)
            same.append(digest(list(model.parameters())))
    except StepError as error:
        return {"error": str(error), "same": same}
    finally:
        sync.close()
    moved = not torch.equal(model[9].weight, net()[9].weight)  # pyright: ignore[reportIndexIssue]
    rates = [(group["lr"], group["weight_decay"]) for group in optimizer.param_groups]
    return {"error": "", "same": same, "moved": moved, "rates": rates}


def test_groups_may_change_while_ranks_train_apart(pool: Pool, tmp_path: Path) -> None:
    one, other = pool.run(regrouped, 2, str(tmp_path), False)
    assert one["error"] == other["error"] == ""
    assert one["same"][4] != other["same"][4] and one["same"][11:] == other["same"][11:]
    assert one["moved"] and one["rates"] == other["rates"] == [(0.002, 0.1), (0.05, 0.01)]


def test_groups_that_one_rank_alone_has_changed_are_refused_on_all(pool: Pool, tmp_path: Path) -> None:
    one, other = pool.run(regrouped, 2, str(tmp_path), True)
    assert one["error"] == other["error"]
    assert "The optimizers of rank 0 and rank 1 are over other parameters." in one["error"]
    assert len(one["same"]) == 11, "at the move back to gradients, where they must become one"


def thawed(context: Context, folder: str) -> str:
    """A layer that was frozen when the model was wrapped trains from step 4 on."""
    model: Any = net()
    model[3].requires_grad_(False)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer, sync = made(context, folder, model, trained, MOVES)
    number = 0
    try:
        for number in range(8):
            if number == 4:
                model[3].requires_grad_(True)
                optimizer.add_param_group({"params": list(model[3].parameters())})
            step(optimizer, sync, number, context.rank)
    except StepError as error:
        return f"{number}: {error}"
    finally:
        sync.close()
    return ""


def test_a_layer_that_no_round_carries_is_refused(pool: Pool, tmp_path: Path) -> None:
    for text in pool.run(thawed, 2, str(tmp_path)):
        assert text.startswith("5: Parameters are trained that were frozen when rounds began")
        assert "3.weight, " in text and "field:     optimizer.param_groups" in text and "Unfreeze them before" in text


def left(context: Context, folder: str, at: int, resumes: bool) -> dict[str, Any]:
    """Detached while the moves say apart: it stays so."""
    model: Any = net()
    optimizer, sync = made(context, folder, model, model.parameters(), MOVES)
    same, apart = [], []
    for number in range(at + 4):
        if number == at:
            sync.detach()
        if number == at + 2 and resumes:
            sync.load_state_dict(sync.state_dict())
        sync.begin()
        step(optimizer, sync, number, context.rank)
        same.append(digest(list(model.parameters())))
        apart.append(trains_apart_now(sync))
    settled = sync.settle()
    sync.close()
    return {"same": same, "apart": apart, "settled": settled}


@pytest.mark.parametrize(("at", "resumes"), [(1, False), (5, False), (5, True)])
def test_who_has_left_is_not_taken_apart_again(pool: Pool, at: int, resumes: bool, tmp_path: Path) -> None:
    one, other = pool.run(left, 2, str(tmp_path), at, resumes)
    assert one["same"][at:] == other["same"][at:]
    assert one["apart"][at:] == [False] * 4 and not one["settled"]

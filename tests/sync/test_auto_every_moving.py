"""Moves from gradients to training apart and back on real ranks: one model, nothing lost, the same bits again."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from squeezed_models import batch, digest, loss_of, net, wrapped

from ranks import Context, Pool
from trainingkit.core.errors import ConfigError
from trainingkit.sync.auto.ladder import LADDER, PLAIN, START, Rung
from trainingkit.sync.auto.moves import Move, read_moves, write_move
from trainingkit.sync.contract import trains_apart_now
from trainingkit.sync.doors import squeeze
from trainingkit.sync.going.switch import Going
from trainingkit.sync.piloting import AutoSettings

STEPS = 30
TWO, FOUR = Rung(START, every=2, tau=1), Rung(START, every=4, tau=4)
COURSE = [
    Move(0, Rung(START), "begin"),
    Move(3, TWO, "test"),
    Move(8, FOUR, "test"),
    Move(18, Rung(PLAIN), "test"),
    Move(20, Rung("all|int3(block=64)", normalise=True), "test"),
    Move(24, FOUR, "test"),
]


def made(context: Context, moves: list[Move], folder: str) -> tuple[Any, Any, Going]:
    path = Path(folder) / f"decisions-{context.rank}.jsonl"
    path.unlink(missing_ok=True)
    for move in moves:
        write_move(path, move)
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    sync = squeeze(wrapped(model), "auto", auto=AutoSettings(replay=path), optimizer=optimizer)
    assert isinstance(sync, Going)
    return model, optimizer, sync


def step(model: Any, optimizer: Any, sync: Any, number: int, rank: int, *, uneven: float = 1.0) -> None:
    sync.weight = 1.0 + uneven * rank
    optimizer.zero_grad()
    loss_of(sync.module, batch(number, rank)).backward()
    optimizer.step()
    sync.commit()


def moved(context: Context, moves: list[Move], folder: str) -> dict[str, Any]:
    model, optimizer, sync = made(context, moves, folder)
    models, optimizers, apart, sent = [], [], [], []
    for number in range(STEPS):
        step(model, optimizer, sync, number, context.rank)
        with sync.agreed_weights():
            models.append(digest(list(model.parameters())))
        own = [value for entry in optimizer.state_dict()["state"].values() for value in entry.values()]
        optimizers.append(digest(own))
        apart.append(trains_apart_now(sync))
        sent.append(sync.stats()["sent_bytes"])
    sync.settle()
    models.append(digest(list(model.parameters())))
    sync.close()
    return {"models": models, "optimizers": optimizers, "apart": apart, "sent": sent}


@pytest.mark.parametrize("ranks", [2, 3])
def test_all_ranks_agree_over_moves_and_again(pool: Pool, ranks: int, tmp_path: Path) -> None:
    ended = pool.run(moved, ranks, COURSE, str(tmp_path))
    assert all(one["models"] == ended[0]["models"] for one in ended), "the agreed model is one"
    for number in range(STEPS):
        apart = 3 <= number + 1 < 18 or number + 1 >= 24
        assert ended[0]["apart"][number] == apart
        assert apart or len({one["optimizers"][number] for one in ended}) == 1, "replicas have one optimizer"
    assert ended[0]["optimizers"][9] != ended[1]["optimizers"][9], "where ranks train apart each has its own"
    assert ended[0]["sent"][2] == ended[0]["sent"][3], "a step between two rounds sends nothing"
    again = pool.run(moved, ranks, COURSE, str(tmp_path))
    for key in ("models", "optimizers", "apart"):
        assert [one[key] for one in again] == [one[key] for one in ended]


def resumed(context: Context, folder: str, cut: int) -> list[str]:
    """Digests of this rank's own model after each step; at the cut everything is built anew from the state."""
    model, optimizer, sync = made(context, COURSE, folder)
    digests = []
    for number in range(cut):
        step(model, optimizer, sync, number, context.rank)
        digests.append(digest(list(model.parameters())))
    state = sync.state_dict()
    parameters = {name: values.clone() for name, values in model.state_dict().items()}
    moments = copy.deepcopy(optimizer.state_dict())
    sync.close()
    model, optimizer, sync = made(context, COURSE, folder)
    with torch.no_grad():
        for name, values in model.state_dict().items():
            values.copy_(parameters[name])
    optimizer.load_state_dict(moments)
    sync.load_state_dict(state)
    for number in range(cut, STEPS):
        step(model, optimizer, sync, number, context.rank)
        digests.append(digest(list(model.parameters())))
    sync.close()
    return digests


@pytest.mark.parametrize("cut", [2, 3, 6, 9, 13, 18, 27])
def test_a_run_that_goes_on_from_a_state_has_the_same_bits(pool: Pool, cut: int, tmp_path: Path) -> None:
    """In each of the modes, with a round on its way, and where one mode has just begun."""
    whole = pool.run(resumed, 2, str(tmp_path), STEPS)
    assert pool.run(resumed, 2, str(tmp_path), cut) == whole


def brought_back(context: Context, folder: str) -> dict[str, Any]:
    """One local step apart, then back to gradients; copies of models and moments before and after."""
    model, optimizer, sync = made(context, [Move(0, Rung(START), "begin"), Move(2, FOUR, "test")], folder)
    for number in range(2):
        step(model, optimizer, sync, number, context.rank, uneven=0.0)
    found: dict[str, Any] = {"begin": [parameter.detach().clone() for parameter in model.parameters()]}
    step(model, optimizer, sync, 2, context.rank, uneven=0.0)
    for when in ("own", "agreed"):
        found[when] = [parameter.detach().clone() for parameter in model.parameters()]
        found[f"{when}_moments"] = [entry["exp_avg_sq"].clone() for entry in optimizer.state.values()]
        found[f"{when}_steps"] = [float(entry["step"]) for entry in optimizer.state.values()]
        if when == "own":
            optimizer.state[next(iter(model.parameters()))]["step"] += context.rank
            sync.detach()
    sync.close()
    return found


def test_back_at_gradients_all_of_what_ranks_did_is_in_the_model(pool: Pool, tmp_path: Path) -> None:
    """The last round travels in four bits, and what it leaves in bf16 after it: no more than that is lost."""
    one, other = pool.run(brought_back, 2, str(tmp_path))
    for number, begin in enumerate(one["begin"]):
        assert torch.equal(one["agreed"][number], other["agreed"][number])
        mean = (one["own"][number] + other["own"][number]) / 2.0
        assert (one["agreed"][number] - mean).abs().max() <= 4e-3 * (mean - begin).abs().max()
    for mine, theirs, agreed in zip(one["own_moments"], other["own_moments"], one["agreed_moments"], strict=True):
        torch.testing.assert_close(agreed, (mine + theirs) / 2, rtol=2**-7, atol=0.0)
    assert one["agreed_steps"] == other["agreed_steps"] == one["own_steps"], "counters are rank 0's"


def flown(context: Context) -> dict[str, Any]:
    """Under the controller itself, whose moves follow a script; rows and codecs are real."""
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    sync: Any = squeeze(wrapped(model), "auto", auto=AutoSettings(max_every=4), optimizer=optimizer)
    controller, heard = sync.gradients.pilot._controller, []
    names = [str(rung) for rung in controller.ladder]
    course = {8: str(TWO), 17: str(FOUR), 37: "all|int8(block=64)"}

    def observe(number: int, seen: Any) -> Any:
        heard.append((number, seen))
        if number not in course:
            return None
        return controller._move(number, names.index(course[number]), "as the script says")

    controller.observe = observe
    for number in range(44):
        sync.gradients.loss = 1.0
        step(model, optimizer, sync, number, context.rank)
    loads = controller.loads()
    sync.close()
    rounds = {number: seen for number, seen in heard if 9 < number <= 37 and seen.window_s > 0}
    return {
        "moves": [(move.step, str(move.rung)) for move in sync.gradients.pilot.moves],
        "model": digest(list(model.parameters())),
        "rounds": rounds,
        "loads": [(load.every, load.lag, load.sent_bytes) for load in loads],
        "losses": {seen.loss for _, seen in heard},
    }


def test_the_controller_hears_of_whole_rounds(pool: Pool) -> None:
    ended = pool.run(flown, 2)
    assert ended[0] == ended[1]
    assert [step for step, _ in ended[0]["moves"]] == [0, 8, 17, 37]
    rounds = ended[0]["rounds"]
    assert list(rounds) == [11, 13, 15, 17, 22, 26, 30, 34], "a step after each round"
    for number in sorted(rounds.keys() - {11, 22}):
        seen = rounds[number]
        assert 0.0 < seen.window_s < 60.0 and seen.code_s > 0.0 and seen.rate > 0.0
    loads = ended[0]["loads"]
    assert [load[:2] for load in loads if load[0] > 1] == [(2, 1), (4, 2), (4, 4)]
    start = loads[[rung.codec for rung in LADDER].index(START)]
    assert {load[2] for load in loads if load[0] > 1} == {start[2]}, "a round is as large as a step's gradients"
    assert ended[0]["losses"] == {1.0}


def free(context: Context) -> dict[str, Any]:
    """Fast links and tiny steps: what the controller chooses is chance, but not between ranks."""
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    sync: Any = squeeze(wrapped(model), "auto", auto=AutoSettings(max_every=8), optimizer=optimizer)
    for number in range(90):
        step(model, optimizer, sync, number, context.rank)
    moves = [(move.step, str(move.rung)) for move in sync.gradients.pilot.moves]
    with sync.agreed_weights():
        bits = digest(list(model.parameters()))
    sync.close()
    return {"moves": moves, "bits": bits}


@pytest.mark.parametrize("ranks", [2, 3])
def test_whatever_it_chooses_all_ranks_choose_alike(pool: Pool, ranks: int) -> None:
    ended = pool.run(free, ranks)
    assert all(one == ended[0] for one in ended)


def test_moves_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    for move in COURSE:
        write_move(path, move)
    assert read_moves(path) == COURSE


def scripted(context: Context, folder: str) -> str:
    """A script that does not say its optimizer."""
    path = Path(folder) / f"decisions-{context.rank}.jsonl"
    write_move(path, COURSE[0])
    write_move(path, COURSE[1])
    try:
        squeeze(wrapped(net()), "auto", auto=AutoSettings(replay=path))
    except ConfigError as error:
        return str(error)
    return ""


def test_moves_apart_need_the_optimizer(pool: Pool, tmp_path: Path) -> None:
    text = pool.run(scripted, 2, str(tmp_path))[0]
    assert "sync.replay" in text and str(TWO) in text and "next step" in text

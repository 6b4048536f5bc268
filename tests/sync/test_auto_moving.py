"""Moves between rungs on real ranks: nothing is lost, all ranks agree, and a replay comes to the same bits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from squeezed_models import SMALL_MB, batch, digest, gradients, loss_of, net, squeezed, wrapped

from ranks import Context, Pool
from trainingkit.core.errors import ConfigError
from trainingkit.sync.auto.course import LEARN_STEPS, Course
from trainingkit.sync.auto.ladder import LADDER, PLAIN, START, Rung
from trainingkit.sync.auto.moves import Move, read_moves, write_continued, write_move
from trainingkit.sync.piloting import AutoSettings
from trainingkit.sync.residualstate import pending

STEPS = 30
INT3 = Rung("all|int3(block=64)", normalise=True)
TOPK = Rung("topk(density=0.05, chunk=4096)|int4(block=64)")
COURSE = [
    Move(0, Rung(START), "begin"),
    Move(4, Rung(PLAIN), "test"),
    Move(7, Rung("all|int8(block=64)"), "test"),
    Move(10, INT3, "test"),
    Move(19, TOPK, "test"),
    Move(23, Rung(PLAIN), "test"),
    Move(26, Rung("all|bf16"), "test"),
]


def moved(context: Context, moves: list[Move], folder: str) -> dict[str, Any]:
    path = Path(folder) / f"decisions-{context.rank}.jsonl"
    for move in moves:
        write_move(path, move)
    model = net()
    ddp = wrapped(model)
    given = {n: torch.zeros(p.numel(), dtype=torch.float64) for n, p in model.named_parameters()}
    got = {n: torch.zeros(p.numel(), dtype=torch.float64) for n, p in model.named_parameters()}
    digests, owed = [], []
    state: dict[str, Any] = {}
    with squeezed(ddp, "auto", auto=AutoSettings(replay=path)) as sync:
        for step in range(STEPS):
            alone = net()
            alone.load_state_dict(model.state_dict())
            loss_of(alone, batch(step, context.rank)).backward()
            ddp.zero_grad()
            loss_of(ddp, batch(step, context.rank)).backward()
            for name, parameter in model.named_parameters():
                other = dict(alone.named_parameters())[name]
                assert parameter.grad is not None and other.grad is not None
                given[name] += other.grad.double().flatten()
                got[name] += parameter.grad.double().flatten()
            digests.append(digest(gradients(model)))
            sync.commit()
            state = sync.state_dict()
            owed.append(sum(float(values.abs().sum()) for values in state["own"].values()))
        ended = {key: value for key, value in state.items() if key in ("own", "answer", "moment")}
    return {"given": given, "got": got, "state": ended, "digests": digests, "owed": owed}


@pytest.mark.parametrize("ranks", [2, 3])
def test_nothing_is_lost_over_moves_and_all_ranks_agree(pool: Pool, ranks: int, tmp_path: Path) -> None:
    ended = pool.run(moved, ranks, COURSE, str(tmp_path))
    assert all(one["digests"] == ended[0]["digests"] for one in ended)
    owed = pending([one["state"] for one in ended])
    for name, got in ended[0]["got"].items():
        lost = sum(one["given"][name] for one in ended) / ranks - got - owed.get(name, torch.zeros_like(got))
        assert lost.abs().max() <= 1e-4 * (1e-3 + got.abs().max()), name


def test_plain_pays_all_that_is_owed(pool: Pool, tmp_path: Path) -> None:
    owed = pool.run(moved, 2, COURSE, str(tmp_path))[0]["owed"]
    assert owed[3] > 0
    assert owed[4:7] == [0.0] * 3
    assert owed[7] > 0
    assert owed[23:26] == [0.0] * 3


def test_the_same_moves_give_the_same_bits(pool: Pool, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = pool.run(moved, 2, COURSE, str(tmp_path / "a"))
    second = pool.run(moved, 2, COURSE, str(tmp_path / "b"))
    assert first[0]["digests"] == second[0]["digests"]
    other = pool.run(moved, 2, COURSE[:3], str(tmp_path / "b"))
    assert other[0]["digests"][:10] != first[0]["digests"][:10] or other[0]["digests"] != first[0]["digests"]


def flown(context: Context) -> dict[str, Any]:
    """Under the controller itself; fast links and tiny steps, so what it chooses is chance, but not between ranks."""
    model = net()
    ddp = wrapped(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with squeezed(ddp, "auto") as sync:
        for step in range(60):
            optimizer.zero_grad()
            loss = loss_of(ddp, batch(step, context.rank))
            loss.backward()
            optimizer.step()
            sync.loss = float(loss)
            sync.commit()
        moves = [(move.step, str(move.rung)) for move in sync.pilot.moves]
        state = json.loads(json.dumps(sync.state_dict()["pilot"]))
    return {"moves": moves, "bits": digest(list(model.parameters())), "state": state}


@pytest.mark.parametrize("ranks", [2, 3])
def test_the_controller_decides_alike_on_all_ranks(pool: Pool, ranks: int) -> None:
    ended = pool.run(flown, ranks)
    assert all(one == ended[0] for one in ended)
    assert ended[0]["moves"][0] == (0, START)


def unjudged(context: Context) -> dict[str, Any]:
    """A plain loop: nobody calls commit; evaluations run in between."""
    model = net()
    ddp = wrapped(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    windows = []
    with squeezed(ddp, "auto") as sync:
        observe = sync.pilot._controller.observe

        def watched(step: int, seen: Any) -> Any:
            windows.append(seen.window_s)
            return observe(step, seen)

        sync.pilot._controller.observe = watched
        for step in range(12):
            optimizer.zero_grad()
            loss_of(ddp, batch(step, context.rank)).backward()
            optimizer.step()
            with torch.no_grad():
                ddp(batch(step, context.rank))
    return {"windows": windows}


def test_a_plain_loop_is_watched_too(pool: Pool) -> None:
    windows = pool.run(unjudged, 2)[0]["windows"]
    assert len(windows) >= 9
    assert all(0.0 < window < 60.0 for window in windows[1:]), windows


def resumed(context: Context, moves: list[Move], folder: str, cut: int) -> list[str]:
    path = Path(folder) / f"decisions-{context.rank}.jsonl"
    for move in moves:
        write_move(path, move)
    auto = AutoSettings(replay=path)
    model = net()
    with squeezed(wrapped(model), "auto", auto=auto) as sync:
        digests = [_step(model, sync, step, context.rank) for step in range(cut)]
        state, parameters = sync.state_dict(), {n: p.clone() for n, p in model.state_dict().items()}
    again = net()
    again.load_state_dict(parameters)
    with squeezed(wrapped(again), "auto", auto=auto) as sync:
        sync.load_state_dict(state)
        return digests + [_step(again, sync, step, context.rank) for step in range(cut, STEPS)]


def _step(model: Any, sync: Any, step: int, rank: int) -> str:
    sync.module.zero_grad()
    loss_of(sync.module, batch(step, rank)).backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.sub_(0.05 * parameter.grad)
    sync.commit()
    return digest(gradients(model))


@pytest.mark.parametrize("cut", [5, 9, 12, 17, 21, 25])
def test_a_run_that_goes_on_from_a_state_has_the_same_bits(pool: Pool, cut: int, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    whole = pool.run(resumed, 2, COURSE, str(tmp_path / "a"), STEPS)
    parts = pool.run(resumed, 2, COURSE, str(tmp_path / "b"), cut)
    assert parts[0] == whole[0]


def test_a_normalised_rung_learns_its_unit_first() -> None:
    course = Course(Rung(START))
    course.move(10, INT3)
    assert course.at(9) == Rung(START)
    assert [course.at(10 + n) for n in range(LEARN_STEPS)] == [Rung(START, normalise=True)] * LEARN_STEPS
    assert course.at(10 + LEARN_STEPS) == INT3


def test_moves_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    for move in COURSE[:4]:
        write_move(path, move)
    write_continued(path, 8)
    write_move(path, Move(12, TOPK, "after the return"))
    assert [(move.step, move.rung) for move in read_moves(path)] == [
        *((move.step, move.rung) for move in COURSE[:3]),
        (12, TOPK),
    ]


@pytest.mark.parametrize("text", ["", '{"choice": "rung", "step": "x", "value": {}}\n', '{"choice": "threads"}\n'])
def test_moves_that_cannot_be_read_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "decisions.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"(?s)sync.replay.*next step"):
        read_moves(path)


def test_the_ladder_goes_down_in_bytes() -> None:
    ratios = [rung.ratio for rung in LADDER]
    assert ratios == sorted(ratios)
    assert ratios[0] == 1.0
    assert SMALL_MB < 1

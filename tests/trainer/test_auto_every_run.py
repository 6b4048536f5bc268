"""A run that goes over to training apart and back, through real snapshots of `Kit`: resume == continue, one model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import FEATURES, config, digest, events, losses, open_rank
from torch import nn

from ranks import Context, Fault, Pool, RankFailed
from trainingkit.core import decisions
from trainingkit.recovery import load_new, newest_good
from trainingkit.sync.auto.ladder import START, Rung
from trainingkit.sync.auto.moves import Move, write_move
from trainingkit.trainer.kit import Kit

TOTAL = 18
FOUR = Rung(START, every=4, tau=4)
COURSE = [
    Move(0, Rung(START), "begin"),
    Move(3, Rung(START, every=2, tau=1), "test"),
    Move(6, FOUR, "test"),
    Move(14, Rung("all|int8(block=64)"), "test"),
]


def moves_file(folder: Path) -> str:
    path = folder / "moves.jsonl"
    for move in COURSE:
        write_move(path, move)
    return str(path)


def train(context: Context, folder: str, sync: dict[str, Any], steps: int = TOTAL, every: int = 0) -> dict[str, Any]:
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Linear(FEATURES, 96), nn.Tanh(), nn.Linear(96, 96), nn.Dropout(0.1), nn.Linear(96, 64), nn.Linear(64, 3)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    rate = torch.optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.8)
    generator = torch.Generator().manual_seed(context.rank)
    data = [(x, (x.sum(dim=1) > 0).long()) for x in torch.randn(5, 4, FEATURES, generator=generator)]
    settings = config(
        run={"steps": steps}, sync={"bucket_mb": 0.02, "islands": "off", **sync}, snapshot={"every": every}
    )
    torch.manual_seed(2 + context.rank)
    with Kit(open_rank(context, Path(folder)), model, optimizer, settings, rate=rate) as kit:
        for batch in kit.batches(data):
            kit._keeper._snapshots.wait()
            context.at_step(kit.step_number + 1)
            kit.step(lambda m, b: nn.functional.cross_entropy(m(b[0]), b[1]), batch)
    return {"model": digest(model.state_dict()), "optimizer": digest(optimizer.state_dict()), "step": kit.step_number}


def killed(pool: Pool, folder: Path, sync: dict[str, Any], at: int, every: int) -> None:
    """A run of two ranks whose last snapshot is of the step before `at` that `every` divides."""
    with pytest.raises(RankFailed):
        pool.run(train, 2, str(folder), sync, TOTAL, every, faults=[Fault(r, at, "kill") for r in range(2)])


@pytest.mark.parametrize(("every", "at"), [(2, 4), (5, 6), (8, 12), (16, 18)], ids=["before", "apart", "flies", "back"])
def test_a_killed_run_resumes_as_if_it_had_gone_on(pool: Pool, tmp_path: Path, every: int, at: int) -> None:
    sync = {"codec": "auto", "replay": moves_file(tmp_path)}
    straight = pool.run(train, 2, str(tmp_path / "straight"), sync)
    killed(pool, tmp_path / "killed", sync, at, every)
    assert pool.run(train, 2, str(tmp_path / "killed"), sync) == straight
    assert straight[0] == straight[1], "back at gradients replicas are one, optimizer included"
    for rank in range(2):
        assert losses(tmp_path / "killed", rank) == losses(tmp_path / "straight", rank)


def test_a_snapshot_apart_holds_the_agreed_model_and_what_gradients_owe(pool: Pool, tmp_path: Path) -> None:
    sync = {"codec": "auto", "replay": moves_file(tmp_path)}
    killed(pool, tmp_path / "run", sync, 10, 8)
    good, _ = newest_good(tmp_path / "run" / "snapshots")
    assert good is not None and good.step == 8
    found = [load_new(good.path, of=rank)[0] for rank in range(2)]
    name = "2.weight"
    assert torch.equal(found[0][f"model/{name}"].flatten(), found[0][f"sync/agreed/parameters/{name}"])
    own = [found[rank][f"rank-{rank}/sync/local/{name}"] for rank in range(2)]
    assert not torch.equal(own[0], own[1])
    assert bool(found[1][f"rank-1/sync/gradients/own/{name}"].any())


@pytest.mark.parametrize(
    ("ranks", "sync"),
    [
        (3, {"codec": "auto"}),
        (1, {"codec": "auto"}),
        (2, {"codec": "auto", "max_every": 1}),
        (2, {"codec": "all|int8(block=64)"}),
        (2, {"codec": "every(3)|all|int4"}),
    ],
    ids=str,
)
def test_other_ranks_and_other_wires_go_on_from_it(
    pool: Pool, tmp_path: Path, ranks: int, sync: dict[str, Any]
) -> None:
    killed(pool, tmp_path / "run", {"codec": "auto", "replay": moves_file(tmp_path)}, 10, 8)
    ended = pool.run(train, ranks, str(tmp_path / "run"), sync, 24)
    assert len({one["model"] for one in ended}) == 1
    values = losses(tmp_path / "run")
    assert sorted(values) == list(range(1, 25))
    assert (values[24] or 9.0) < (values[1] or 0.0)


def test_a_run_of_every_goes_on_under_the_controller(pool: Pool, tmp_path: Path) -> None:
    pool.run(train, 2, str(tmp_path), {"codec": "every(3)|all|int4"}, 7, 2)
    ended = pool.run(train, 2, str(tmp_path), {"codec": "auto", "max_every": 4}, 40)
    assert ended[0]["model"] == ended[1]["model"]
    rungs = [row for row in decisions.read(tmp_path / "decisions.jsonl") if row["choice"] == "rung"]
    assert rungs[0]["value"]["codec"] == START
    for row in rungs[1:]:
        told = [text for step, event, text in events(tmp_path) if event == "rung" and step == row["step"]]
        assert told and ("every" in row["value"]) == told[0].startswith("Ranks train apart by every(")

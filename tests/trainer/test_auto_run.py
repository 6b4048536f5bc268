"""A run under the controller: its moves are in the run's records, and a run that repeats them has the same bits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from small_runs import FEATURES, config, digest, losses, open_rank
from torch import nn

from ranks import Context, Pool
from trainingkit.core import decisions
from trainingkit.sync.auto.ladder import START, Rung
from trainingkit.sync.auto.moves import Move, write_move
from trainingkit.trainer.kit import Kit


def train(context: Context, folder: str, sync: dict[str, Any], steps: int) -> str:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(FEATURES, 96), nn.Tanh(), nn.Linear(96, 96), nn.Tanh(), nn.Linear(96, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    x = torch.randn(4, FEATURES, generator=torch.Generator().manual_seed(context.rank))
    sync = {"bucket_mb": 0.02, **sync}
    with Kit(open_rank(context, Path(folder)), model, optimizer, config(run={"steps": steps}, sync=sync)) as kit:
        for batch in kit.batches([(x, (x.sum(dim=1) > 0).long())]):
            kit.step(lambda m, b: nn.functional.cross_entropy(m(b[0]), b[1]), batch)
    return digest(model.state_dict())


def rungs(folder: Path) -> list[dict[str, Any]]:
    return [row for row in decisions.read(folder / "decisions.jsonl") if row["choice"] == "rung"]


def test_moves_are_decisions_and_a_replay_has_the_same_bits(pool: Pool, tmp_path: Path) -> None:
    first = pool.run(train, 2, str(tmp_path / "a"), {"codec": "auto"}, 40)
    assert len(set(first)) == 1
    rows = rungs(tmp_path / "a")
    assert rows[0]["value"] == {"codec": START, "normalise": False} and rows[0]["step"] == 0
    assert all(row["reason"] for row in rows)
    replay = {"codec": "auto", "replay": str(tmp_path / "a" / "decisions.jsonl")}
    second = pool.run(train, 2, str(tmp_path / "b"), replay, 40)
    assert second == first
    assert losses(tmp_path / "b") == losses(tmp_path / "a")


def test_a_resumed_replay_has_the_same_bits(pool: Pool, tmp_path: Path) -> None:
    moves = tmp_path / "moves.jsonl"
    for move in (
        Move(0, Rung(START), "begin"),
        Move(3, Rung("none"), "test"),
        Move(6, Rung("all|int8(block=64)"), "test"),
    ):
        write_move(moves, move)
    replay = {"codec": "auto", "replay": str(moves)}
    whole = pool.run(train, 2, str(tmp_path / "whole"), replay, 9)
    for cut in (2, 4, 7):
        folder = str(tmp_path / f"cut{cut}")
        pool.run(train, 2, folder, replay, cut)
        assert pool.run(train, 2, folder, replay, 9) == whole


def test_a_resumed_run_goes_on_from_its_rung(pool: Pool, tmp_path: Path) -> None:
    pool.run(train, 2, str(tmp_path), {"codec": "auto"}, 12)
    before = rungs(tmp_path)
    pool.run(train, 2, str(tmp_path), {"codec": "auto"}, 14)
    text = (tmp_path / "decisions.jsonl").read_text()
    continued = [json.loads(line) for line in text.splitlines() if "rung.continued" in line]
    assert [row["step"] for row in continued] == [12]
    assert rungs(tmp_path)[: len(before)] == before

"""When a snapshot is due: by steps, by a clock that all ranks follow, and by what is learned of its cost."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_runs import FEATURES, batches, config, events, loss_fn, open_alone, open_rank
from torch import nn

from ranks import Context, Pool
from trainingkit.core import decisions
from trainingkit.core.errors import ConfigError
from trainingkit.core.records import EventRecord, Record, StartRecord, StepRecord
from trainingkit.recovery import find
from trainingkit.recovery.interval import best_interval_s, between_failures_s
from trainingkit.trainer.cadence import ByClock, BySteps, Learned
from trainingkit.trainer.failures import seen
from trainingkit.trainer.kit import Kit


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.s = 0.0

    def __call__(self) -> float:
        return self.s


def lost_share(interval_s: float, cost_s: float, mtbf_s: float) -> float:
    """Daly's model of an endless job: wall seconds for a second of progress, restarts for nothing."""
    return mtbf_s * (math.exp((interval_s + cost_s) / mtbf_s) - 1.0) / interval_s


@settings(deadline=None, max_examples=60)
@given(cost_s=st.floats(1e-3, 50.0), mtbf_s=st.floats(200.0, 1e7))
def test_no_other_interval_loses_less(cost_s: float, mtbf_s: float) -> None:
    best = best_interval_s(cost_s, mtbf_s)
    at_best = lost_share(best, cost_s, mtbf_s)
    for factor in (0.5, 0.8, 1.25, 2.0):
        assert at_best <= lost_share(factor * best, cost_s, mtbf_s) * (1 + 1e-9)
    if cost_s < 1e-4 * mtbf_s:
        assert best == pytest.approx(math.sqrt(2.0 * cost_s * mtbf_s), rel=0.01), "Young's"


def test_where_a_snapshot_costs_more_than_it_saves() -> None:
    assert best_interval_s(500.0, 100.0) == 100.0


def test_failures_that_were_seen_count() -> None:
    def start(attempt: int, at_s: float) -> StartRecord:
        return StartRecord(attempt, at_s, 0, 2, "h", 1, 1, 0, 100)

    def step(attempt: int, number: int, at_s: float) -> StepRecord:
        return StepRecord(attempt, number, at_s, 1.0, 1, 1.0, {}, 0, 0.1)

    records: list[Record] = [start(1, 0.0), step(1, 50, 3600.0), start(2, 4000.0), step(2, 60, 5800.0)]
    records += [EventRecord(2, 60, 5800.0, "preempted", "x"), start(3, 6000.0), step(3, 100, 7800.0), start(4, 8000.0)]
    assert seen(records, attempt=4) == (3600.0 + 1800.0 + 1800.0, 1), "killed, stopped, done"
    assert seen(records, attempt=1) == (0.0, 0)
    assert between_failures_s(86400.0, 7200.0, 1) == 46800.0


def test_by_steps_and_by_the_clock() -> None:
    assert [step for step in range(1, 8) if BySteps(3).due(step, agreed=False)] == [3, 6]
    assert not any(BySteps(0).due(step, agreed=True) for step in range(1, 8))
    clock = Clock()
    first, second = (ByClock(30.0, decides=decides, now=clock) for decides in (True, False))
    clock.s = 29.0
    assert not first.wants()
    clock.s = 31.0
    assert first.wants() and not second.wants(), "one clock counts"
    assert second.due(7, agreed=True)
    first.saved(0.1)
    assert not first.wants()


def test_what_is_heard_a_step_late_is_saved_once() -> None:
    """Ranks that train apart hear in each step what was asked in the one before."""
    clock, saved, heard = Clock(), [], False
    cadence = ByClock(30.0, decides=True, now=clock)
    for step in range(1, 13):
        clock.s += 10.0
        wanted = cadence.wants()
        if cadence.due(step, agreed=heard):
            cadence.saved(0.1)
            saved.append(step)
        heard = wanted
    assert saved == [4, 8, 12]
    assert [cadence.wants() for clock.s in (149.0, 150.0, 151.0, 152.0)] == [False, True, False, True], "asked again"


def test_the_interval_follows_from_the_cost() -> None:
    """Copies of 20 ms, and ten steps beside the writer that are 8 ms slower: 0.1 s."""
    clock, told = Clock(), []
    cadence = Learned(3600.0, decides=True, tell=lambda *all_of_it: told.append(all_of_it), now=clock)
    for _ in range(5):
        cadence.stepped(0.1, writing=False)
    for _ in range(2):
        clock.s += 40.0
        assert cadence.wants()
        cadence.saved(0.02)
        for _ in range(10):
            clock.s += 10.0
            cadence.stepped(0.108, writing=True)
            assert not cadence.wants(), "not while one is written"
        cadence.stepped(0.1, writing=False)
        assert cadence.interval_s == pytest.approx(best_interval_s(0.1, 3600.0), rel=1e-6)
        assert len(told) == 1, "told when it changes"
    assert told[0][1] == "one costs 100 ms of training, and a failure is expected every 1 h 00 min"


def train(session: Any, every: int | str, steps: int) -> list[int]:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(FEATURES, 8), nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    settings_ = config(run={"steps": steps}, snapshot={"every": every, "keep": 100, "mtbf": "1s"})
    saved: list[int] = []
    with Kit(session, model, optimizer, settings_) as kit:
        for batch in kit.batches(batches(5, rank=session.rank)):
            kit.step(loss_fn, batch)
            saved.append(kit._keeper.saved_step)
    return sorted(set(saved) - {0})


def train_rank(context: Context, folder: str, every: int | str) -> list[int]:
    return train(open_rank(context, Path(folder)), every, 40)


@pytest.mark.parametrize("every", ["0.01s", "1ms"])
def test_ranks_save_after_the_same_steps(pool: Pool, tmp_path: Path, every: str) -> None:
    saved = pool.run(train_rank, 2, str(tmp_path), every)
    assert saved[0] == saved[1] and len(saved[0]) >= 2
    assert {found.step for found in find(tmp_path / "snapshots")} == {*saved[0], 40}


def test_a_learned_interval_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainingkit.trainer.cadence.FIRST_S", 0.01)
    train(open_alone(tmp_path), "auto", 300)
    told = [text for _, event, text in events(tmp_path) if event == "snapshot" and text.startswith("A snapshot every")]
    assert told and "of training, and a failure is expected every 1 s" in told[0]
    kept = [row for row in decisions.read(tmp_path / "decisions.jsonl") if row["choice"] == "snapshot interval"]
    assert len(kept) == len(told) and 0.0 < kept[0]["value"] <= 1.0


@pytest.mark.parametrize("every", [-1, "0s", "often", "-3s", True])
def test_what_is_no_cadence(every: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        config(snapshot={"every": every})
    assert str(caught.value.field).startswith("snapshot.every")

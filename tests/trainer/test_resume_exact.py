"""resume == continue, bit for bit: parameters, buffers, optimizer, schedule, generators and losses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_runs import config, losses, open_alone, train, train_rank

from ranks import Pool

TOTAL = 9


def run(pool: Pool, ranks: int, folder: Path, settings: dict[str, Any], **options: Any) -> list[dict[str, Any]]:
    return pool.run(train_rank, ranks, str(folder), settings, options)


@pytest.mark.parametrize("loader", ["shuffled", "listed", "counting"])
@pytest.mark.parametrize(("ranks", "stop_at", "accumulate"), [(1, 1, 1), (1, 5, 2), (2, 4, 1), (2, 7, 3), (3, 3, 2)])
def test_a_stopped_and_resumed_run_is_the_undisturbed_one(
    pool: Pool, tmp_path: Path, loader: str, ranks: int, stop_at: int, accumulate: int
) -> None:
    settings = {"run": {"steps": TOTAL}, "step": {"accumulate": accumulate}}
    straight = run(pool, ranks, tmp_path / "straight", settings, loader=loader)
    stopped = run(pool, ranks, tmp_path / "stopped", settings, loader=loader, stop_at=stop_at, stop_rank=ranks - 1)
    assert [(one["step"], one["exit_code"]) for one in stopped] == [(stop_at, 75)] * ranks
    resumed = run(pool, ranks, tmp_path / "stopped", settings, loader=loader)
    assert resumed == straight
    for rank in range(ranks):
        expected = losses(tmp_path / "straight", rank)
        assert losses(tmp_path / "stopped", rank) == expected
        assert sorted(expected) == list(range(1, TOTAL + 1))


def test_the_stop_matters(pool: Pool, tmp_path: Path) -> None:
    """The comparison can fail: with another order of the data the result is another one."""
    settings = {"run": {"steps": TOTAL}}
    assert run(pool, 1, tmp_path / "a", settings, loader="shuffled") != run(
        pool, 1, tmp_path / "b", settings, loader="listed"
    )


def test_several_stops_in_one_run(tmp_path: Path) -> None:
    settings = config(run={"steps": TOTAL})
    straight = train(open_alone(tmp_path / "straight"), settings, loader="shuffled")
    for stop_at in (2, 3, 6):
        train(open_alone(tmp_path / "stopped"), settings, loader="shuffled", stop_at=stop_at)
    assert train(open_alone(tmp_path / "stopped"), settings, loader="shuffled") == straight


def test_a_finished_run_stays_as_it_is(tmp_path: Path) -> None:
    settings = config(run={"steps": 4})
    done = train(open_alone(tmp_path), settings, loader="listed")
    again = train(open_alone(tmp_path), settings, loader="listed")
    assert again == done
    assert sorted(losses(tmp_path)) == [1, 2, 3, 4]


def test_snapshots_on_the_way_change_nothing(tmp_path: Path) -> None:
    plain = train(open_alone(tmp_path / "plain"), config(run={"steps": TOTAL}), loader="shuffled")
    often = config(run={"steps": TOTAL}, snapshot={"every": 1, "keep": 2})
    assert train(open_alone(tmp_path / "often"), often, loader="shuffled") == plain


def test_ranks_hold_the_same_model(pool: Pool, tmp_path: Path) -> None:
    ended = run(pool, 2, tmp_path, {"run": {"steps": 3}}, loader="counting")
    assert ended[0]["model"] == ended[1]["model"]
    assert ended[0]["optimizer"] == ended[1]["optimizer"]
    assert losses(tmp_path, 0) != losses(tmp_path, 1)

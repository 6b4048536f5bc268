"""examples/own_loop.py alone and under torchrun: the loss falls, it stops and continues, and a failing rank is told."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from ranks import until
from ranks.cli import Finished, orphans, start_cli
from trainingkit.core.outcome import read as read_outcomes
from trainingkit.core.records import StartRecord, latest_steps, read_records
from trainingkit.core.runfolder import RunFolder

SCRIPT = Path(__file__).parents[2] / "examples" / "own_loop.py"
ALONE = (sys.executable, str(SCRIPT))
TWO = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(SCRIPT))
STEPS = 40


def go(folder: Path, command: tuple[str, ...], run_name: str = "run") -> Finished:
    run = start_cli([run_name], cwd=folder, command=command)
    try:
        return run.wait(110)
    finally:
        run.kill()


def losses(run: RunFolder, rank: int) -> list[float | None]:
    return [record.loss for record in latest_steps(read_records(run.metrics(rank))[0])]


def falls(values: list[float | None]) -> bool:
    numbers = [value for value in values if value is not None]
    return sum(numbers[-5:]) < 0.7 * sum(numbers[:5])


def test_alone_stopped_and_continued(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    started = start_cli(["run"], cwd=tmp_path, command=ALONE)
    try:
        until(lambda: len(losses(run, 0)) >= 10, deadline_s=60, what="ten steps")
        started.signal(signal.SIGTERM)
        stopped = started.wait(20)
    finally:
        started.kill()
    assert stopped.code == 75, stopped.stderr
    before = len(losses(run, 0))
    assert 10 <= before < STEPS
    ended = go(tmp_path, ALONE)
    assert ended.code == 0, ended.stderr
    assert f"Continuing after step {before}." in ended.stdout
    assert len(losses(run, 0)) == STEPS and falls(losses(run, 0))
    assert run.report.exists()
    assert "steps" in run.recipe.read_text()
    assert read_outcomes(run)[0].status == "done"


def test_two_ranks_under_torchrun(tmp_path: Path) -> None:
    ended = go(tmp_path, TWO)
    assert ended.code == 0, ended.stderr
    run = RunFolder(tmp_path / "run")
    for rank in range(2):
        assert len(losses(run, rank)) == STEPS and falls(losses(run, rank))
    assert losses(run, 0) != losses(run, 1)
    assert {rank: one.status for rank, one in read_outcomes(run).items()} == {0: "done", 1: "done"}
    starts = [r for r in read_records(run.metrics(1))[0] if isinstance(r, StartRecord)]
    assert [(one.rank, one.world_size) for one in starts] == [(1, 2)]
    assert run.report.exists()
    assert not orphans(ended.marker)


@pytest.mark.slow
def test_two_ranks_continue_under_torchrun(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    started = start_cli(["run"], cwd=tmp_path, command=TWO)
    try:
        until(lambda: any(run.snapshots.glob("step-*/manifest.json")), deadline_s=60, what="a snapshot")
    finally:
        started.kill()
    ended = go(tmp_path, TWO)
    assert ended.code == 0, ended.stderr
    assert "Continuing after step" in ended.stdout
    whole = RunFolder(tmp_path / "whole")
    assert go(tmp_path, TWO, "whole").code == 0
    for rank in range(2):
        assert losses(run, rank) == losses(whole, rank)


FAILING = """
import sys
import torch, trainingkit as tk
model = torch.nn.Linear(2, 1)
with tk.attach(model, torch.optim.SGD(model.parameters(), lr=0.1), {"run": {"steps": 9, "folder": sys.argv[1]}}) as kit:
    for batch in kit.batches([torch.ones(1, 2)] * 3):
        if kit.rank == 1 and kit.step_number == 4:
            raise ValueError("rank 1 has had enough")
        kit.step(lambda model, batch: model(batch).sum(), batch)
"""


def test_a_failing_rank_fails_torchrun(tmp_path: Path) -> None:
    script = tmp_path / "failing.py"
    script.write_text(FAILING)
    ended = go(tmp_path, (*TWO[:-1], str(script)))
    assert ended.code == 1
    assert "ValueError: rank 1 has had enough" in ended.stderr
    outcomes = read_outcomes(RunFolder(tmp_path / "run"))
    assert (outcomes[1].status, outcomes[1].step, outcomes[1].secondary) == ("failed", 4, False)
    assert 0 not in outcomes or outcomes[0].secondary
    assert not orphans(ended.marker)

"""Signals and faults on a real command with two workers: exit code, message, time, nobody left, snapshots whole."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from cli_runs import END_S, losses, nobody_left, recipe, running, saved_step, wait_for_step

from ranks import Fault, until
from ranks.cli import CliRun, Finished, orphans
from trainingkit.core.runfolder import RunFolder


def worker_pids(run: CliRun) -> dict[int, int]:
    """Process id of each rank."""
    found = {}
    for process in orphans(run.marker):
        rank = process.environ().get("RANK")
        if rank is not None and "trainingkit.trainer.worker" in process.cmdline():
            found[int(rank)] = process.pid
    return found


def ended(run: CliRun, since: float) -> Finished:
    """Wait for the end, which must come in time after the event."""
    finished = run.wait(END_S)
    assert time.monotonic() - since < END_S
    assert nobody_left(run.marker)
    return finished


@pytest.mark.parametrize(
    "how",
    [
        "ctrl-c",
        pytest.param("term", marks=pytest.mark.slow),
        "term-one-worker",
        "usr1",
        pytest.param("file", marks=pytest.mark.slow),
    ],
)
def test_a_request_to_stop_saves_and_ends_with_75(tmp_path: Path, how: str) -> None:
    with running(["train", str(recipe(tmp_path, pause_s=0.05))], tmp_path) as run:
        wait_for_step(run, 2)
        since = time.monotonic()
        if how == "ctrl-c":
            run.interrupt()
        elif how == "term":
            run.signal(signal.SIGTERM)
        elif how == "usr1":
            run.signal(signal.SIGUSR1)
        elif how == "file":
            (tmp_path / "run" / "stop").touch()
        else:
            os.kill(worker_pids(run)[1], signal.SIGTERM)
        finished = ended(run, since)
    assert finished.code == 75, finished.stdout + finished.stderr
    step = saved_step(tmp_path / "run")
    assert f"Stopped on request after step {step}; the state is saved." in finished.stdout
    assert "next step: trainingkit resume run" in finished.stdout
    assert "Traceback" not in finished.stdout + finished.stderr
    assert not (tmp_path / "run" / "stop").exists(), "a request that was met does not stop the resume"
    assert max(losses(tmp_path / "run", 0)) == max(losses(tmp_path / "run", 1)) == step


@pytest.mark.parametrize("kind", ["raise", "kill"])
def test_a_rank_that_fails_ends_the_run_with_its_reason(tmp_path: Path, kind: str) -> None:
    faults = [Fault(1, 6, kind)]
    with running(["train", str(recipe(tmp_path, every=2))], tmp_path, faults) as run:
        wait_for_step(run, 5)
        finished = ended(run, time.monotonic())
    assert finished.code == 1, finished.stdout + finished.stderr
    if kind == "raise":
        assert "error: Rank 1 on" in finished.stderr
        assert "failed at step 5.\nInjectedFault: injected fault on rank 1 at step 6" in finished.stderr
        assert "in forward" in finished.stderr, "the traceback of the user's own code is shown"
    else:
        assert "error: Rank 1 died: killed by SIGKILL." in finished.stderr
    assert "Rank 0" not in finished.stderr
    assert "next step: trainingkit resume run" in finished.stderr
    assert "logs:      run/logs/" in finished.stderr
    assert saved_step(tmp_path / "run") in (2, 4)
    assert (tmp_path / "run" / "report.html").exists()


def test_a_killed_command_leaves_no_worker(tmp_path: Path) -> None:
    with running(["train", str(recipe(tmp_path, pause_s=0.05))], tmp_path) as run:
        wait_for_step(run, 2)
        run.signal(signal.SIGKILL)
        assert run.wait(END_S).code == -signal.SIGKILL
        assert nobody_left(run.marker)
    assert saved_step(tmp_path / "run") >= 2, "the workers saw that their parent is gone, and saved"


def test_a_second_interrupt_ends_at_once(tmp_path: Path) -> None:
    """Rank 1 takes half a minute for a step, so that the first Ctrl-C has to wait."""
    with running(["train", str(recipe(tmp_path))], tmp_path, [Fault(1, 3, "slow", seconds=30.0)]) as run:
        wait_for_step(run, 2)
        run.interrupt()
        until(lambda: "Ctrl-C again ends at once" in run.stdout(), deadline_s=END_S, what="the first Ctrl-C to arrive")
        assert len(worker_pids(run)) == 2
        since = time.monotonic()
        run.interrupt()
        finished = ended(run, since)
    assert finished.code == 130, finished.stderr
    assert "Stopped at once by Ctrl-C, without saving.\n  next step: train again; nothing was saved" in finished.stderr
    assert "Traceback" not in finished.stderr


@pytest.mark.slow
def test_a_stop_before_the_first_step_says_that_nothing_was_saved(tmp_path: Path) -> None:
    with running(["train", str(recipe(tmp_path))], tmp_path) as run:
        until(lambda: len(worker_pids(run)) == 2, deadline_s=90, what="two workers")
        since = time.monotonic()
        run.signal(signal.SIGTERM)
        finished = ended(run, since)
    assert finished.code == 75, finished.stderr
    assert "Stopped by SIGTERM before every rank could finish a step and save." in finished.stdout
    assert "next step: train again; nothing was saved yet" in finished.stdout


@pytest.mark.slow
def test_one_process_stops_too(tmp_path: Path) -> None:
    with running(["train", str(recipe(tmp_path, pause_s=0.05, workers=1))], tmp_path) as run:
        wait_for_step(run, 2)
        since = time.monotonic()
        run.interrupt()
        finished = ended(run, since)
    assert finished.code == 75, finished.stderr
    assert RunFolder(tmp_path / "run").report.exists()
    assert saved_step(tmp_path / "run") == max(losses(tmp_path / "run"))

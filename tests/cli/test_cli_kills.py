"""SIGKILL of everything, at moments that differ, then `trainingkit resume`: the losses of an undisturbed run."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from cli_runs import losses, nobody_left, recipe, running, saved_step, wait_for_step

from ranks import until
from ranks.cli import run_cli
from trainingkit.core.runfolder import RunFolder
from trainingkit.recovery import newest_good

STEPS = 14


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[int, float | None]]:
    """Losses of each rank by step, of a run that nothing happened to."""
    folder = tmp_path_factory.mktemp("undisturbed")
    finished = run_cli(["train", str(recipe(folder, steps=STEPS))], cwd=folder)
    assert finished.code == 0, finished.stdout + finished.stderr
    return {rank: losses(folder / "run", rank) for rank in range(2)}


def resume(folder: Path) -> str:
    """Continue to the end; what was printed."""
    finished = run_cli(["resume", "run"], cwd=folder)
    assert finished.code == 0, finished.stdout + finished.stderr
    assert nobody_left(finished.marker)
    return finished.stdout


@pytest.mark.slow
def test_killed_between_saves(tmp_path: Path, undisturbed: dict[int, dict[int, float | None]]) -> None:
    with running(["train", str(recipe(tmp_path, pause_s=0.05, steps=STEPS))], tmp_path) as run:
        wait_for_step(run, 6)
    saved = saved_step(tmp_path / "run")
    assert saved == 4
    assert f"Continuing after step {saved}." in resume(tmp_path)
    assert {rank: losses(tmp_path / "run", rank) for rank in range(2)} == undisturbed
    assert saved_step(tmp_path / "run") == STEPS


@pytest.mark.parametrize("moment", [pytest.param(n, marks=pytest.mark.slow if n != 4 else ()) for n in range(0, 12, 2)])
def test_killed_during_a_save(tmp_path: Path, undisturbed: dict[int, dict[int, float | None]], moment: int) -> None:
    """Killed when the unfinished folder of a save was seen `moment` times, half a millisecond apart."""
    snapshots = RunFolder(tmp_path / "run").snapshots
    seen = itertools.count()

    def saving() -> bool:
        whole = any(snapshots.glob("step-*/manifest.json"))
        return whole and any(snapshots.glob("*partial*")) and next(seen) >= moment

    with running(["train", str(recipe(tmp_path, pause_s=0.02, steps=STEPS, every=1))], tmp_path) as run:
        wait_for_step(run, 1)
        until(lambda: saving() or run.process.poll() is not None, deadline_s=30, what="a save", every_s=0.0005)
        assert run.process.poll() is None, "no save was caught"
    good, _ = newest_good(snapshots)
    assert good is not None
    assert f"Continuing after step {good.step}." in resume(tmp_path)
    assert {rank: losses(tmp_path / "run", rank) for rank in range(2)} == undisturbed

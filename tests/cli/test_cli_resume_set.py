"""`trainingkit resume RUN --set ...`: what may change changes and is noted; the rest is refused, and nothing starts."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from cli_inside import Command
from cli_runs import losses, recipe

from trainingkit.cli.running import conclude
from trainingkit.core import decisions
from trainingkit.core.outcome import Verdict
from trainingkit.core.runfolder import RunFolder
from trainingkit.trainer.recipe import load_run_recipe


@pytest.fixture
def run(command: Command, tmp_path: Path) -> RunFolder:
    """Trained for four steps."""
    ended = command("train", recipe(tmp_path, steps=4, every=2, workers=1))
    assert ended.code == 0, ended.stderr
    return RunFolder(tmp_path / "run")


def test_a_run_goes_on_for_longer(command: Command, run: RunFolder) -> None:
    before = losses(run.root)
    ended = command("resume", run.root, "--set", "run.steps=7", "--set", "snapshot.keep=1")
    assert ended.code == 0, ended.stderr
    assert "Changed: run.steps: 4 -> 7 (the schedule of the learning rate takes this length" in ended.stdout
    assert "Continuing after step 4." in ended.stdout
    after = losses(run.root)
    assert sorted(after) == [1, 2, 3, 4, 5, 6, 7] and {step: after[step] for step in before} == before
    assert load_run_recipe(run).run.steps == 7
    noted = {row["choice"]: row for row in decisions.read(run.decisions)}
    assert (noted["run.steps"]["step"], noted["run.steps"]["value"]) == (4, 7)
    assert noted["snapshot.keep"]["reason"] == "set on resume instead of 2: it changes no number"
    assert "set on resume instead of 4" in run.report.read_text()
    again = command("resume", run.root)
    assert "Nothing left to do: step 7 is done" in again.stdout and "Changed" not in again.stdout


def test_workers_is_short_for_the_setting(command: Command, run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(
        "trainingkit.cli.running.run_recipe", lambda recipe, *_, **__: asked.append(recipe.workers) or 0
    )
    assert command("resume", run.root, "--workers", 3).code == 0 and asked == [3]
    ended = command("resume", run.root, "--workers", "many")
    assert ended.code == 2 and "field:     --workers" in ended.stderr


def test_a_ctrl_c_that_saves_nothing_says_how_to_go_on(
    command: Command, run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("trainingkit.cli.running.run_recipe", interrupted)
    monkeypatch.chdir(run.root.parent)
    ended = command("resume", run.root)
    assert ended.code == 130
    assert ended.stderr.startswith("Stopped at once by Ctrl-C, without saving.\n  next step: trainingkit resume run ")
    assert "(the newest snapshot is of step 4)" in ended.stderr


def test_what_the_snapshot_depends_on_stays(command: Command, run: RunFolder) -> None:
    before = run.recipe.read_bytes()
    for override in ("optimizer.lr=0.1", "run.seed=2", "data.seq_len=16"):
        ended = command("resume", run.root, "--set", "run.steps=9", "--set", override)
        assert ended.code == 2 and "cannot change when a run is resumed" in ended.stderr
        assert ended.stderr.count("next step:") == 1
    ended = command("resume", run.root, "--set", "run.stepz=9")
    assert ended.code == 2 and "Did you mean 'steps'?" in ended.stderr
    assert run.recipe.read_bytes() == before and max(losses(run.root)) == 4
    assert not [row for row in decisions.read(run.decisions) if "set on resume" in row["reason"]]


def test_changes_are_noted_at_the_snapshot_that_was_taken(command: Command, run: RunFolder) -> None:
    """The newest one is damaged, and one newer still was never finished."""
    tensors = next((run.snapshots / "step-00000004").glob("*.safetensors"))
    tensors.write_bytes(tensors.read_bytes()[:-1])
    (run.snapshots / ".step-00000009.partial").mkdir()
    ended = command("resume", run.root, "--set", "run.steps=5")
    assert ended.code == 0 and "Continuing after step 2." in ended.stdout, ended.stderr
    assert [row["step"] for row in decisions.read(run.decisions) if row["choice"] == "run.steps"] == [2]


def test_patience_moves_the_end_which_is_why_it_is_said(command: Command, tmp_path: Path) -> None:
    path = recipe(tmp_path, steps=6, every=2, workers=1)
    assert command("train", path, "--set", "run.steps=2", "--set", "optimizer.lr=1e-30").code == 0
    words = ("--set", "run.steps=6", "--set", "eval.every=1", "--set", "eval.patience=1")
    ended = command("resume", tmp_path / "run", *words)
    assert ended.code == 0, ended.stderr
    assert "Changed: eval.patience: 0 -> 1 (training may end at another step)" in ended.stdout
    assert max(losses(tmp_path / "run")) < 6, "the loss does not get better, and that ended it"


def test_the_command_that_continues_survives_a_shell(
    command: Command, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "it's a run"
    path = recipe(tmp_path, steps=2, every=2, workers=1)
    assert command("train", path, "--set", f"run.folder={folder}").code == 0
    for verdict in (Verdict(75, "preempted", "Stopped."), Verdict(1, "failed", "No.", step=2, advised=True)):
        assert conclude(RunFolder(folder), verdict) == verdict.exit_code
        shown = "".join(capfd.readouterr())
        said = next(line for line in shown.splitlines() if "trainingkit resume" in line)
        assert shlex.split(said.partition(": ")[2]) == ["trainingkit", "resume", folder.name]

"""`eval`, `export` and `report` of one small run, and training with one process through the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from cli_inside import Command
from cli_runs import TINY, losses

from trainingkit.core.outcome import read as read_outcomes
from trainingkit.core.records import EvalRecord, read_records
from trainingkit.core.runfolder import RunFolder

ALONE = ("--workers", "1", "--set", "run.threads=1", "--set", "precision.compute=fp32", "--set", "eval.samples=0")


@pytest.fixture
def run(command: Command, tmp_path: Path) -> RunFolder:
    """Trained for six steps."""
    folder = RunFolder(tmp_path / "run")
    ended = command("train", TINY, *ALONE, "--set", "run.steps=6", "--set", f"run.folder={folder.root}", *SMALL)
    assert ended.code == 0, ended.stderr
    assert ended.stdout.splitlines()[-2:] == ["Run:  run", "Page: run/report.html"]
    return folder


SMALL = ("--set", "data.kind=text", "--set", "data.path=words.txt", "--set", "data.seq_len=32")


@pytest.fixture(autouse=True)
def words(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("".join(f"the number {n} and its square {n * n}\n" for n in range(300)))


def test_the_tools_agree_on_one_run(command: Command, run: RunFolder, tmp_path: Path) -> None:
    assert sorted(losses(run.root)) == [1, 2, 3, 4, 5, 6]
    assert read_outcomes(run)[0].status == "done"
    during = [r for r in read_records(run.metrics(0))[0] if isinstance(r, EvalRecord)][-1]

    shown = json.loads(command("eval", run.root, "--json").stdout)
    assert shown["step"] == 6 and shown["samples"] == during.samples
    assert shown["metrics"] == during.metrics
    line = command("eval", run.root).stdout
    assert line.startswith(f"step 6  loss {during.metrics['loss']:.4f}")
    assert json.loads(command("eval", run.root, "--json", "--step", 4).stdout)["metrics"] != shown["metrics"]
    assert json.loads(command("eval", run.root, "--json", "--samples", 3).stdout)["samples"] == 3

    exported = command("export", run.root, tmp_path / "model")
    assert exported.stdout == f"Model of step 6: {tmp_path / 'model'}\n"
    assert exported_loss(tmp_path / "model", run) == pytest.approx(during.metrics["loss"], rel=1e-6)
    again = command("export", run.root, tmp_path / "model")
    assert again.code == 2 and "The output folder is not empty" in again.stderr

    page = command("report", run.root, "--output", tmp_path / "page.html")
    assert page.stdout == f"The page is {tmp_path / 'page.html'}\n"
    assert (tmp_path / "page.html").read_text().lstrip().lower().startswith("<!doctype html>")


def exported_loss(folder: Path, run: RunFolder) -> float:
    """Mean loss of the exported model over all validation windows, weighted by their tokens."""
    from transformers import AutoModelForCausalLM

    from trainingkit.data.evaluation import eval_batches
    from trainingkit.trainer.recipe import load_run_recipe

    model = AutoModelForCausalLM.from_pretrained(folder)
    model.eval()
    total = weight = 0.0
    with torch.no_grad():
        for batch in eval_batches(load_run_recipe(run).data_section().open().validation, 2):
            total += float(model(**batch).loss) * batch["labels"].numel()
            weight += batch["labels"].numel()
    return total / weight


def test_a_run_goes_on_after_its_end_without_a_change(command: Command, run: RunFolder) -> None:
    before = losses(run.root)
    ended = command("resume", run.root)
    assert ended.code == 0, ended.stderr
    assert "Nothing left to do: step 6 is done, and run.steps is 6. Raise it to train on." in ended.stdout
    assert losses(run.root) == before


def test_early_stop_holds_over_a_resume(command: Command, tmp_path: Path) -> None:
    stop = (
        "--set",
        "eval.every=1",
        "--set",
        "eval.patience=2",
        "--set",
        "optimizer.lr=1e-30",
        "--set",
        "run.folder=run",
    )
    ended = command("train", TINY, *ALONE, *SMALL, *stop)
    assert ended.code == 0, ended.stderr
    assert "No better loss in 2 evaluations: stopping here." in ended.stdout
    steps = losses(tmp_path / "run")
    assert len(steps) < 12
    again = command("resume", "run")
    assert again.code == 0
    assert "Nothing left to do: no better loss in 2 evaluations before." in again.stdout
    assert losses(tmp_path / "run") == steps

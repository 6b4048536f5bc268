"""Workers die and the run goes on: started again by our own launch, with as many as there are, no sample lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_runs import losses, nobody_left, recipe, saved_step
from cli_witness import name_of, used

from ranks import Fault
from ranks.cli import Finished, run_cli
from trainingkit.cli.relaunch import judged
from trainingkit.core import decisions
from trainingkit.core.outcome import Outcome
from trainingkit.core.runfolder import RunFolder
from trainingkit.data import SampleOrder
from trainingkit.trainer.recipe import load_recipe

BATCH = 2


def witnessed(folder: Path, *, workers: int, steps: int, codec: str = "none", saved: int = 0) -> Path:
    """A recipe whose model writes down what it is given, and waits for the snapshot of step `saved` after that step."""
    path = recipe(folder, steps=steps, every=2, workers=workers)
    witness = Path(__file__).with_name("cli_witness.py")
    model = f'ref = "{witness}:witness", args = {{ folder = "{folder}", saved = {saved} }}'
    lines = [
        f'model = {{ kind = "python", {model} }}'
        if line.startswith("model")
        else f'sync = {{ codec = "{codec}", islands = "off" }}'
        if line.startswith("sync")
        else line
        for line in path.read_text().splitlines()
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def expected(path: Path, count: int) -> list[int]:
    """The first samples of the run, in order."""
    settings = load_recipe(str(path))
    source = settings.data_section().open().train
    order = SampleOrder(len(source), settings.run.seed)
    return [name_of(source.sample(int(index))["input_ids"]) for index in order.indices(0, count)]


def ended(finished: Finished) -> Finished:
    assert finished.code == 0, finished.stdout + finished.stderr
    assert nobody_left(finished.marker)
    return finished


def test_a_killed_worker_is_started_again(tmp_path: Path) -> None:
    path = witnessed(tmp_path, workers=2, steps=8, codec="all|int4(block=64)", saved=6)
    finished = ended(
        run_cli(["train", str(path), "--set", "run.restarts=1"], cwd=tmp_path, faults=[Fault(1, 7, "kill")])
    )
    assert "Rank 1 died: killed by SIGKILL. Restart 1 of at most 1." in finished.stdout
    run = RunFolder(tmp_path / "run")
    by_step, begun = used(tmp_path, run)
    assert [record.world_size for record in begun] == [2, 2] and begun[1].start_step == 6
    assert [index for ranks in by_step.values() for part in ranks for index in part] == expected(path, 8 * 2 * BATCH)
    kept = [row for row in decisions.read(run.decisions) if row["choice"] == "restart"]
    assert [row["value"] for row in kept] == [{"workers": 2}] and kept[0]["step"] == 6
    assert saved_step(run.root) == 8 and sorted(losses(run.root)) == list(range(1, 9))


@pytest.mark.slow
def test_four_three_two_four(tmp_path: Path) -> None:
    """Two deaths in one command, then a resume with all of them: no sample twice, none missed."""
    path = witnessed(tmp_path, workers=4, steps=14, codec="all|int4(block=64)")
    faults = [Fault(3, 5, "kill"), Fault(2, 6, "kill")]
    finished = ended(run_cli(["train", str(path), "--workers", "2:4"], cwd=tmp_path, faults=faults))
    assert "Restart 1 of at most 2. 3 of 4 workers go on." in finished.stdout
    assert "Restart 2 of at most 2. 2 of 3 workers go on." in finished.stdout
    ended(run_cli(["resume", "run", "--set", "run.steps=17"], cwd=tmp_path))
    by_step, begun = used(tmp_path, RunFolder(tmp_path / "run"))
    assert [record.world_size for record in begun] == [4, 3, 2, 4]
    assert sorted(by_step) == list(range(1, 18))
    assert {len(ranks) for ranks in by_step.values()} == {2, 3, 4}
    seen = [index for ranks in by_step.values() for part in ranks for index in part]
    assert seen == expected(path, len(seen))


@pytest.mark.slow
def test_an_error_of_the_workers_own_is_not_tried_again(tmp_path: Path) -> None:
    path = recipe(tmp_path, steps=8, every=2)
    finished = run_cli(["train", str(path), "--set", "run.restarts=3"], cwd=tmp_path, faults=[Fault(1, 3, "raise")])
    assert finished.code == 1 and "InjectedFault" in finished.stderr
    assert "Restart" not in finished.stdout and nobody_left(finished.marker)


def outcomes(*statuses: str) -> dict[int, Outcome]:
    """By rank; "" leaves none, "peer" failed because of another rank."""
    return {
        rank: Outcome(rank, "failed" if status in ("peer", "own") else status, 1, 7, secondary=status == "peer")
        for rank, status in enumerate(statuses)
        if status
    }


def test_what_is_worth_another_start() -> None:
    killed = judged(outcomes("peer", "", "peer"), 3, {1: "killed by SIGKILL"})
    assert killed.again and killed.lost == (1,) and killed.step == 7
    assert killed.verdict.message == "Rank 1 died: killed by SIGKILL."
    cut = judged(outcomes("peer", "peer"), 2, {})
    assert cut.again and cut.lost == ()
    assert not judged(outcomes("peer", "own"), 2, {}).again
    assert not judged(outcomes("own", ""), 2, {1: "exit code 1"}).again
    assert not judged(outcomes("done", "done"), 2, {0: "killed by SIGTERM"}).again
    assert not judged(outcomes("preempted", "preempted"), 2, {}).again

"""Recipes and questions that the command-line tests share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ranks import until
from ranks.cli import CliRun, orphans, start_cli
from ranks.faults import Fault
from trainingkit.core.records import latest_steps, read_records
from trainingkit.core.runfolder import RunFolder
from trainingkit.recovery import newest_good

TINY = Path(__file__).parents[1] / "trainer" / "tiny.toml"
MODELS = Path(__file__).with_name("cli_models.py")
START_S = 90.0
"""How long a command may take until its first step on a busy machine."""
END_S = 10.0
"""How long it may take to end after an event."""


def recipe(folder: Path, *, pause_s: float = 0.0, steps: int = 200, every: int = 4, workers: int = 2) -> Path:
    """Write a recipe over text of its own into `folder`; the run goes to `folder / "run"`."""
    text = "".join(f"line {number} of {number * number % 97} words, then another\n" for number in range(400))
    (folder / "text.txt").write_text(text)
    path = folder / "recipe.toml"
    path.write_text(
        f"""
name = "test"
workers = {workers}
run = {{ folder = "{folder / "run"}", steps = {steps}, log_every = 1, threads = 1, grace_s = 30.0 }}
model = {{ kind = "python", ref = "{MODELS}:faulty", args = {{ pause_s = {pause_s} }} }}
data = {{ kind = "text", path = "{folder / "text.txt"}", seq_len = 32 }}
batch = {{ size = 2 }}
eval = {{ every = 0, samples = 4 }}
snapshot = {{ every = {every} }}
sync = {{ codec = "none" }}
"""
    )
    return path


@contextmanager
def running(arguments: list[str], cwd: Path, faults: list[Fault] | None = None) -> Iterator[CliRun]:
    """A command that does not survive its test."""
    run = start_cli(arguments, cwd=cwd, faults=faults or ())
    try:
        yield run
    finally:
        run.kill()


def wait_for_step(run: CliRun, step: int) -> None:
    """Until the command has printed that step (or has ended before)."""
    until(
        lambda: f"step {step}/" in run.stdout() or run.process.poll() is not None,
        deadline_s=START_S,
        what=f"step {step}",
    )
    assert f"step {step}/" in run.stdout(), run.stdout() + run.stderr()


def nobody_left(marker: str) -> bool:
    """True once no process of the run lives any more."""
    return until(lambda: not orphans(marker), deadline_s=END_S, what="the end of all processes")


def saved_step(folder: Path) -> int:
    """Step of the newest whole snapshot; 0 without one. No snapshot is damaged."""
    good, damaged = newest_good(RunFolder(folder).snapshots)
    assert not damaged
    return good.step if good else 0


def losses(folder: Path, rank: int = 0) -> dict[int, float | None]:
    """Loss by step, as the records tell; of a step that was run twice, the later attempt."""
    records, _ = read_records(RunFolder(folder).metrics(rank))
    return {record.step: record.loss for record in latest_steps(records)}

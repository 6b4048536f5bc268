"""What a session finds in a run folder of an earlier attempt: its number, and outcomes that do not count any more."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_runs import config

from trainingkit.cli import running
from trainingkit.cluster.place import Place
from trainingkit.core import outcome
from trainingkit.core.outcome import Outcome
from trainingkit.core.runfolder import RunFolder
from trainingkit.trainer import fit
from trainingkit.trainer.fit import FitResult
from trainingkit.trainer.recipe import load_recipe
from trainingkit.trainer.session import open_session

TINY = Path(__file__).with_name("tiny.toml")


def test_an_attempt_whose_records_are_lost_is_not_taken_again(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    segment = run.journal / "rank-1" / "seg-00000031.a7.tkj"
    segment.parent.mkdir(parents=True)
    segment.write_bytes(b"")
    session = open_session(config(), run=run)
    session.close()
    assert session.attempt == 8


def test_outcomes_of_ranks_that_are_no_more_go(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.create()
    for rank in (0, 2):
        Outcome(rank, "failed", 1, 7, secondary=True).write(run)
    open_session(config(), run=run).close()
    assert outcome.read(run) == {}


@pytest.mark.parametrize(("status", "code"), [("done", 0), ("failed", 1)])
def test_rank_0_ends_as_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: str, code: int) -> None:
    """Two ranks end, and a third of an earlier, larger launch has left that it failed."""
    run = RunFolder(tmp_path)
    run.create()
    for rank, how in enumerate(("done", status, "failed")):
        Outcome(rank, how, 0 if how == "done" else 1, 9).write(run)

    class Ended:
        def __init__(self, *_: object, **__: object) -> None: ...

        def fit(self) -> FitResult:
            return FitResult(run, 9, {}, 0)

    monkeypatch.setattr(fit, "Trainer", Ended)
    assert running._join(load_recipe(str(TINY)), run, Place(0, 2, 0, 2, "torchrun")) == code

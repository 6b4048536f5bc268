"""One job at a time in a run folder, whatever starts it: rank 0 of every session holds the folder."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from small_runs import Net, batches, config, loss_fn

import trainingkit as tk
from trainingkit.cli.recover import recover
from trainingkit.core import outcome
from trainingkit.core.errors import RunFolderError
from trainingkit.core.runfolder import RunFolder
from trainingkit.trainer import session
from trainingkit.trainer.kit import Kit
from trainingkit.trainer.session import open_session

RANK = """
import sys
import torch
import trainingkit as tk
from trainingkit.trainer import session
session.LET_GO_S = 0.0
model = torch.nn.Linear(2, 2)
try:
    tk.attach(model, torch.optim.SGD(model.parameters(), lr=0.1), {"run": {"folder": sys.argv[1], "threads": 1}})
except tk.core.errors.RunFolderError as error:
    print(error.problem)
"""


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = torch.get_num_threads()
    monkeypatch.setattr(session, "LET_GO_S", 0.0)
    yield
    torch.set_num_threads(before)


def attached(folder: Path) -> Kit:
    model = Net(0.0)
    settings = {"run": {"steps": 3, "folder": str(folder), "threads": 1}, "snapshot": {"every": 1}}
    return tk.attach(model, torch.optim.SGD(model.parameters(), lr=0.1), settings)


def test_a_second_script_is_refused_and_touches_nothing(tmp_path: Path) -> None:
    with attached(tmp_path) as kit:
        kit.step(loss_fn, batches(1)[0])
        kit._keeper._snapshots.wait()
        before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
        with pytest.raises(RunFolderError, match="Another job is at work in this run folder") as caught:
            attached(tmp_path)
        assert caught.value.field == "run.folder" and "then resume" in str(caught.value.next_step)
        now = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
        assert {path.name for path in {*now, *before} if now.get(path) != before.get(path)} <= {tmp_path.name, ".lock"}
        assert outcome.read(RunFolder(tmp_path)) == {}
    with attached(tmp_path) as again:
        assert again.step_number == 1


def test_a_running_script_is_not_set_back(tmp_path: Path) -> None:
    with attached(tmp_path) as kit:
        for batch in batches(2):
            kit.step(loss_fn, batch)
        kit._keeper._snapshots.wait()
        with pytest.raises(RunFolderError, match="Another job is at work"):
            recover(tmp_path, to_step=1)
        assert not (tmp_path / "aside").exists()
    assert recover(tmp_path, to_step=1) == 0


def test_a_loop_that_failed_lets_go(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), attached(tmp_path):
        raise ZeroDivisionError
    attached(tmp_path).close()


def test_a_session_that_cannot_be_set_up_lets_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(session, "choose_compute", fails)
        with pytest.raises(ZeroDivisionError):
            open_session(config(), run=RunFolder(tmp_path))
    open_session(config(), run=RunFolder(tmp_path)).close()


def test_rank_0_joins_the_job_of_its_launcher_and_keeps_the_folder(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    with run.locked(shared=True):
        worker = open_session(config(), run=run, joins=True)
        with pytest.raises(RunFolderError, match="Another job"):
            open_session(config(), run=run)
    with pytest.raises(RunFolderError, match="Another job"), run.locked():
        pytest.fail("the launcher is gone, the worker is not")
    worker.close()
    open_session(config(), run=run).close()


def test_all_ranks_are_refused(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    RunFolder(tmp_path).create()
    with RunFolder(tmp_path).locked():
        ranks = [
            subprocess.Popen([sys.executable, "-c", RANK, str(tmp_path)], env=_env(rank, port), stdout=-1)
            for rank in "01"
        ]
        said = [rank.communicate(timeout=90)[0].decode() for rank in ranks]
    assert said == ["Another job is at work in this run folder.\n"] * 2
    assert outcome.read(RunFolder(tmp_path)) == {}


def _env(rank: str, port: str) -> dict[str, str]:
    own = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    return {**own, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}

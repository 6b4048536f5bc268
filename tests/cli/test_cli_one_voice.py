"""Under torchrun each rank is a command: the one that failed first tells everything, the others a line; codes stay."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_inside import Command
from cli_runs import TINY, nobody_left, recipe
from torch.distributed import TCPStore

from ranks import Fault
from ranks.cli import start_cli
from trainingkit.cli.speaking import one_line, tells_all
from trainingkit.core.errors import DataError, PeerLost

BAD = ("train", TINY, "--set", "optimizer.lrr=1")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch, command: Command) -> Iterator[pytest.MonkeyPatch]:
    """A store as torchrun's agent serves it, and the environment that leads there."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=datetime.timedelta(seconds=10))
    place = {"WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port)}
    for name, value in {**place, "RANK": "0", "TORCHELASTIC_USE_AGENT_STORE": "True"}.items():
        monkeypatch.setenv(name, value)
    yield monkeypatch
    del store


def test_bad_input_that_all_ranks_see_is_told_once(agent: pytest.MonkeyPatch, command: Command) -> None:
    ended = {}
    for rank in (2, 0, 1):
        agent.setenv("RANK", str(rank))
        ended[rank] = command(*BAD)
    assert [ended[rank].code for rank in range(3)] == [2, 2, 2]
    assert ended[2].stderr.startswith("error: There is no setting called 'optimizer.lrr'")
    assert "next step: Did you mean 'lr'?" in ended[2].stderr
    for rank in (0, 1):
        assert ended[rank].stderr == (
            f"rank {rank} failed after another rank, which says more: There is no setting called 'optimizer.lrr'.; "
            "field: optimizer.lrr; found: 'lrr'\n"
        )
    agent.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert command(*BAD).stderr.startswith("error: "), "a restarted group speaks again"


def test_a_rank_that_lost_its_peer_tells_all_where_it_is_the_first_that_asks(agent: pytest.MonkeyPatch) -> None:
    assert tells_all(PeerLost("gone")), "its peer died without a word"
    assert not tells_all(DataError("x"))


def test_where_nobody_can_be_asked_nothing_is_lost(monkeypatch: pytest.MonkeyPatch, command: Command) -> None:
    assert tells_all(PeerLost("gone")), "alone"
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    assert command(*BAD).stderr.startswith("error: There is no setting")
    assert not tells_all(PeerLost("gone")), "the peer that is gone was the first"
    try:
        raise ZeroDivisionError("in\nmy code")
    except ZeroDivisionError as error:
        line = one_line(error)
    assert line.startswith("rank 1 failed after another rank, which says more: ZeroDivisionError: in my code in ")
    assert "test_cli_one_voice.py, line " in line and line.count("\n") == 1
    assert one_line(DataError("No file.", found="x")).endswith("No file.; found: x\n")
    monkeypatch.delenv("MASTER_ADDR")
    assert tells_all(DataError("x")), "where the environment itself is wrong"


def test_a_rank_that_raises_under_torchrun_is_the_one_that_is_heard(tmp_path: Path) -> None:
    path = recipe(tmp_path, every=0)
    words = ["-m", "trainingkit", "train", str(path)]
    run = start_cli(words, cwd=tmp_path, command=TORCHRUN, faults=[Fault(1, 4, "raise")])
    try:
        ended = run.wait(100)
    finally:
        run.kill()
    assert ended.code == 1, ended.stderr
    assert ended.stderr.count("InjectedFault: injected fault on rank 1") == 1, ended.stderr
    assert "next step: Look at the other ranks' logs" not in ended.stderr
    lines = [line for line in ended.stderr.splitlines() if "failed after another rank" in line]
    assert len(lines) <= 1 and all("rank 0" in line for line in lines)
    assert nobody_left(ended.marker)

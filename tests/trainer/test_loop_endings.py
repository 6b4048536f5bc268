"""How a loop of one's own ends: well, badly, on request; what it leaves; what is shown on the way."""

from __future__ import annotations

import json
import logging
import os
import signal
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import Net, batches, config, digest, events, loss_fn, losses, open_alone, open_rank

import trainingkit as tk
from ranks import Context, Pool
from trainingkit.core.errors import CheckpointError, StepError
from trainingkit.core.outcome import read as read_outcomes
from trainingkit.core.records import EvalRecord
from trainingkit.core.runfolder import RunFolder
from trainingkit.sync.control import ControlLane, peers_watched
from trainingkit.trainer.kit import Kit
from trainingkit.trainer.loss import count_tokens, find_loss, to_device
from trainingkit.trainer.progress import Glance, Lines, make_progress
from trainingkit.trainer.stops import StopRequest


@pytest.fixture(autouse=True)
def threads_stay() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def loop(folder: Path, action: Any = None, **sections: Any) -> Kit:
    """Three steps; `action(kit)` before each."""
    model = Net(0.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Kit(open_alone(folder), model, optimizer, config(run={"steps": 3}, **sections)) as kit:
        for batch in kit.batches(batches(3)):
            if action is not None:
                action(kit)
            kit.step(loss_fn, batch)
    return kit


def test_a_good_end(tmp_path: Path) -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    kit = loop(tmp_path)
    outcome = read_outcomes(RunFolder(tmp_path))[0]
    assert (outcome.status, outcome.exit_code, outcome.step) == ("done", 0, 3)
    assert kit.exit_code == 0 and kit.finished
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == handlers
    kit.close()
    with pytest.raises(StepError, match="The kit is closed"):
        kit.step(loss_fn, batches(1)[0])


def test_a_bad_end_leaves_its_reason_and_gives_everything_back(tmp_path: Path) -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]

    def fail(kit: Kit) -> None:
        if kit.step_number == 2:
            raise ZeroDivisionError("in my own code")

    with pytest.raises(ZeroDivisionError):
        loop(tmp_path, fail)
    outcome = read_outcomes(RunFolder(tmp_path))[0]
    assert (outcome.status, outcome.exit_code, outcome.step) == ("failed", 1, 2)
    assert outcome.message == "ZeroDivisionError: in my own code"
    assert "in fail" in outcome.traceback
    assert events(tmp_path)[-1] == (2, "error", "in my own code")
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == handlers


def test_a_failure_whose_outcome_cannot_be_written_is_still_the_one_that_is_raised(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]

    def fail(kit: Kit) -> None:
        outcomes = kit.session.run.outcomes_folder
        outcomes.rmdir()
        outcomes.touch()
        raise ZeroDivisionError("in my own code")

    with pytest.raises(ZeroDivisionError, match="in my own code"):
        loop(tmp_path, fail)
    assert "the outcome of rank 0 cannot be written: " in caplog.text
    assert "the loop failed after step 0" in caplog.text
    assert events(tmp_path)[-1] == (0, "error", "in my own code"), "what comes after it is done, too"
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == handlers


def test_sys_exit_inside_the_loop_is_no_failure(tmp_path: Path) -> None:
    def leave(kit: Kit) -> None:
        if kit.step_number == 2:
            raise SystemExit(kit.exit_code)

    with pytest.raises(SystemExit):
        loop(tmp_path, leave)
    outcome = read_outcomes(RunFolder(tmp_path))[0]
    assert (outcome.status, outcome.step) == ("done", 2)
    assert loop(tmp_path).step_number == 3, "the state was saved, and the run went on to its end"
    assert sorted(losses(tmp_path)) == [1, 2, 3]


def test_a_save_that_fails_at_the_end_is_a_failure(tmp_path: Path) -> None:
    def spoil(kit: Kit) -> None:
        if kit.step_number == 2:
            (tmp_path / "snapshots").rmdir()
            (tmp_path / "snapshots").touch()

    with pytest.raises(CheckpointError):
        loop(tmp_path, spoil)
    outcome = read_outcomes(RunFolder(tmp_path))[0]
    assert (outcome.status, outcome.exit_code, outcome.step) == ("failed", 1, 3)


def test_a_save_that_failed_is_told_before_the_next_one(tmp_path: Path) -> None:
    def spoil(kit: Kit) -> None:
        if kit.step_number == 1:
            kit._keeper._snapshots.wait = lambda: None  # type: ignore[method-assign]
            thread = kit._keeper._snapshots._thread
            assert thread is not None
            thread.join()
            kit._keeper._snapshots._error = CheckpointError("the disk is gone")
            del kit._keeper._snapshots.wait

    with pytest.raises(CheckpointError, match="the disk is gone"):
        loop(tmp_path, spoil, snapshot={"every": 1, "keep": 1}, step={"max_aborts": 1})
    assert sorted(losses(tmp_path)) == [1, 2]


def test_records_that_cannot_be_written_end_the_run_with_a_reason(tmp_path: Path) -> None:
    """A metrics file on a full disk: written through the device that always is one."""

    def fill(kit: Kit) -> None:
        if kit.step_number == 1:
            kit._recorder._writer._handle.close()
            kit._recorder._writer._handle = open("/dev/full", "w", buffering=1)  # noqa: SIM115

    with pytest.raises(StepError, match="records of this run cannot be written: No space left") as caught:
        loop(tmp_path, fill)
    assert caught.value.next_step is not None and "start the script again" in caught.value.next_step
    outcome = read_outcomes(RunFolder(tmp_path))[0]
    assert (outcome.status, outcome.step) == ("failed", 2)


def test_attach_from_a_mapping(tmp_path: Path) -> None:
    level, handlers = logging.getLogger().level, list(logging.getLogger().handlers)
    model = Net(0.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    settings = {"run": {"steps": 3, "folder": str(tmp_path / "run"), "threads": 1}}
    with tk.attach(model, optimizer, settings) as kit:
        for batch in kit.batches(batches(3)):
            loss = kit.step(loss_fn, batch)
            assert loss == losses(tmp_path / "run")[kit.step_number]
    assert (tmp_path / "run" / "report.html").exists()
    assert (logging.getLogger().level, logging.getLogger().handlers) == (level, handlers)


def test_a_stop_ends_after_the_step_and_a_second_interrupt_at_once(tmp_path: Path) -> None:
    kit = loop(tmp_path, lambda kit: os.kill(os.getpid(), signal.SIGTERM))
    assert (kit.step_number, kit.stopped, kit.exit_code) == (1, "SIGTERM", 75)
    assert read_outcomes(RunFolder(tmp_path))[0].status == "preempted"
    stop = StopRequest()
    stop.install()
    try:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.requested == "SIGINT"
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        stop.restore()


def evaluated(context: Context, folder: str, resume_at: int | None) -> dict[str, float]:
    """Train with batch norm, whose statistics differ between ranks until they are aligned; then measure."""
    torch.manual_seed(1)
    model = Net(0.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    settings = config(run={"steps": 3 if resume_at is None else resume_at})
    with Kit(open_rank(context, Path(folder)), model, optimizer, settings) as kit:
        for batch in kit.batches(batches(5, rank=context.rank)):
            kit.step(loss_fn, batch)
        return kit.evaluate(batches(2 + context.rank, rank=7), loss_fn)


def test_evaluation_is_the_same_on_all_ranks_and_after_a_resume(pool: Pool, tmp_path: Path) -> None:
    first = pool.run(evaluated, 2, str(tmp_path), None)
    again = pool.run(evaluated, 2, str(tmp_path), None)
    assert first[0] == first[1] == again[0] == again[1]


def lane_sums(context: Context) -> list[list[float]]:
    """Three agreements in a row."""
    lane = ControlLane(context.group, width=2)
    seen = []
    for step in range(3):
        lane.start([float(context.rank), float(step)])
        seen.append(lane.finish())
    return seen


def test_the_control_lane_sums_over_ranks(pool: Pool) -> None:
    assert pool.run(lane_sums, 3) == [[[3.0, 0.0], [3.0, 3.0], [3.0, 6.0]]] * 3
    alone = ControlLane(None, width=1)
    alone.start([4.0])
    assert alone.finish() == [4.0]


def test_only_lost_peers_become_peer_lost() -> None:
    with pytest.raises(Exception, match="exchange with another rank failed"), peers_watched():
        raise RuntimeError("[enforce fail at gloo/transport/tcp/pair.cc] Connection closed by peer")
    with pytest.raises(RuntimeError, match="shape mismatch"), peers_watched():
        raise RuntimeError("shape mismatch")


def test_progress_lines(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines(6, every=3, start_step=1)
    for step in range(2, 7):
        lines.step(Glance(step, 1.25, 2000.0, 0.5, 0))
    lines.evaluation(EvalRecord(1, 6, 0.0, {"loss": 1.5, "bits_per_byte": 2.0}, 8, 0.25))
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in shown[:-1]] == ["2/6", "3/6", "6/6"]
    assert all("loss 1.2500" in line and "2 k tokens/s" in line and "stall 50%" in line for line in shown[:-1])
    assert shown[-1] == "step 6  validation loss 1.5000  bits per byte 2.0000  (8 samples, 250 ms)"
    make_progress(rank=1, total=6, every=1, start_step=0).message("not shown")
    assert capsys.readouterr().out == ""


Pair = namedtuple("Pair", ["x", "y"])


def test_batches_and_losses_of_many_shapes() -> None:
    x = torch.zeros(3, 2)
    moved = to_device([Pair(x, {"n": x}), (x, 1)], torch.device("cpu"))
    assert isinstance(moved[0], Pair) and torch.equal(moved[0].y["n"], x) and moved[1][1] == 1
    assert count_tokens({"labels": torch.tensor([[1, -100], [2, 3]])}) == 3
    assert [count_tokens(batch) for batch in ({"x": x}, (x, x), x, 7)] == [3, 3, 3, 1]
    loss = torch.tensor(2.0)
    assert all(find_loss(output) is loss for output in (loss, {"loss": loss}, (loss, x), [loss]))
    for output in (x, None, {}, ()):
        with pytest.raises(StepError, match="did not return a loss"):
            find_loss(output)
    assert digest(json.loads("[1]")) == digest([1])

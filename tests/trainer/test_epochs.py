"""Epochs of one's own: counted over a resume by `kit.epochs`, told to samplers, and said when none is left."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import Net, batches, config, digest, events, loss_fn, losses, open_alone, open_rank

import trainingkit as tk
from ranks import Context, Pool
from trainingkit.trainer.kit import Kit

EPOCHS, LENGTH = 3, 4


class Halving:
    """Halves the rate at an epoch's end; the loop calls it by hand."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer
        self.ends = 0

    def epoch_ended(self) -> None:
        self.ends += 1
        self.optimizer.param_groups[0]["lr"] /= 2

    def state_dict(self) -> dict[str, int]:
        return {"ends": self.ends}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self.ends = state_dict["ends"]


def train(folder: Path, stop_at: int | None, *, epochs: int = EPOCHS, **sections: Any) -> dict[str, Any]:
    """`epochs` epochs of four batches; the rate is halved by hand at each end. SIGTERM in step `stop_at`."""
    torch.manual_seed(1)
    model = Net(0.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rate = Halving(optimizer)
    seen = []
    with Kit(open_alone(folder), model, optimizer, config(**sections)) as kit:
        kit.keep("rate", rate)
        for epoch in kit.epochs(epochs):
            for batch in kit.batches(batches(LENGTH)):
                if kit.step_number + 1 == stop_at:
                    os.kill(os.getpid(), signal.SIGTERM)
                kit.step(loss_fn, batch)
                seen.append(epoch)
            rate.epoch_ended()
    return {"seen": seen, "step": kit.step_number, "model": digest(model.state_dict()), "rate": rate.state_dict()}


@pytest.mark.parametrize("stop_at", range(1, EPOCHS * LENGTH + 1))
def test_a_stop_at_any_step_and_a_resume_are_one_run(tmp_path: Path, stop_at: int) -> None:
    whole = train(tmp_path / "whole", None)
    assert whole["seen"] == [epoch for epoch in range(EPOCHS) for _ in range(LENGTH)]
    first = train(tmp_path / "run", stop_at)
    second = train(tmp_path / "run", None)
    assert first["seen"] + second["seen"] == whole["seen"]
    assert (second["model"], second["step"]) == (whole["model"], whole["step"])
    assert second["rate"] == whole["rate"]
    assert losses(tmp_path / "run") == losses(tmp_path / "whole")


def test_a_finished_run_says_so_and_more_epochs_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(tmp_path / "run", None)
    assert train(tmp_path / "run", None)["seen"] == []
    assert "Nothing left to do: all 3 epochs are done." in capsys.readouterr().out
    assert train(tmp_path / "run", None, epochs=5)["seen"] == [3] * LENGTH + [4] * LENGTH
    straight = train(tmp_path / "straight", None, epochs=5)
    assert losses(tmp_path / "run") == losses(tmp_path / "straight") and straight["step"] == 20


def test_steps_end_epochs_early(tmp_path: Path) -> None:
    assert train(tmp_path, None, run={"steps": 6})["seen"] == [0] * LENGTH + [1] * 2


class Told:
    """A loader whose sampler notes which epoch it was told."""

    def __init__(self) -> None:
        self.sampler = self
        self.epochs: list[int] = []

    def set_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)

    def __iter__(self) -> Any:
        return iter(batches(2))


def test_a_sampler_is_told_each_epoch_also_in_walks_by_hand(tmp_path: Path) -> None:
    for counted in (True, False):
        loader = Told()
        model = Net(0.0)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with Kit(open_alone(tmp_path / str(counted)), model, optimizer, config()) as kit:
            for _ in kit.epochs(3) if counted else range(3):
                for batch in kit.batches(loader):
                    kit.step(loss_fn, batch)
        assert loader.epochs == [0, 1, 2]


def uneven(context: Context, folder: str) -> tuple[list[int], int]:
    """Two epochs of which rank 1 has one batch less, with run.steps set, too."""
    torch.manual_seed(1)
    model = Net(0.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = []
    with Kit(open_rank(context, Path(folder)), model, optimizer, config(run={"steps": 99})) as kit:
        for epoch in kit.epochs(2):
            for batch in kit.batches(batches(3 - context.rank, rank=context.rank)):
                kit.step(loss_fn, batch)
                seen.append(epoch)
    return seen, kit.step_number


def test_epochs_end_on_all_ranks_with_the_shortest_data(pool: Pool, tmp_path: Path) -> None:
    assert pool.run(uneven, 2, str(tmp_path), deadline_s=20) == [([0, 0, 1, 1], 4)] * 2


def test_an_attached_run_that_is_done_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    threads = torch.get_num_threads()
    for number in range(2):
        model = Net(0.0)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        settings = {"run": {"steps": 3, "folder": str(tmp_path / "run"), "threads": 1}}
        with tk.attach(model, optimizer, settings) as kit:
            assert kit.finished == (number == 1)
            for batch in kit.batches(batches(3)):
                kit.step(loss_fn, batch)
        said = "Nothing left to do: step 3 is done, and run.steps is 3. Raise it to train on."
        shown = capsys.readouterr().out
        assert (said in shown) == (number == 1) and "Continuing" not in shown
    torch.set_num_threads(threads)


def test_a_pass_that_was_used_up_says_so(tmp_path: Path) -> None:
    for _ in range(2):
        model = Net(0.0)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with Kit(open_alone(tmp_path), model, optimizer, config()) as kit:
            for batch in kit.batches(batches(3)):
                kit.step(loss_fn, batch)
    texts = [text for _, event, text in events(tmp_path) if event == "resume"]
    assert texts == [
        "Continuing after step 3.",
        "Nothing left to do in this pass over the data: it was used up before.",
    ]


def test_leaving_epochs_by_a_break_leaves_their_walks_behind(tmp_path: Path) -> None:
    model = Net(0.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps = 2 * LENGTH + 3
    with Kit(open_alone(tmp_path), model, optimizer, config(run={"steps": steps})) as kit:
        for _ in kit.epochs(EPOCHS):
            for batch in kit.batches(batches(LENGTH)):
                kit.step(loss_fn, batch)
            break
        assert kit.step_number == LENGTH
        for batch in kit.batches(batches(LENGTH)):
            kit.step(loss_fn, batch)
        assert kit.step_number == steps, "outside of epochs the loader is walked as often as run.steps needs"

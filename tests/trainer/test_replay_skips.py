"""Batches that are left out after a run was set back: just before their step, and again when it is resumed there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import Counting, Net, config, events, loss_fn, open_alone

from trainingkit.core.errors import RunFolderError
from trainingkit.core.runfolder import RunFolder
from trainingkit.trainer.kit import Kit
from trainingkit.trainer.skipping import Skipping, read_skips, write_skips


class Watched(Counting):
    """Notes the number of every batch that it gives out."""

    def __init__(self) -> None:
        super().__init__(0)
        self.drawn: list[int] = []

    def __iter__(self) -> Any:
        for batch in super().__iter__():
            self.drawn.append(self.number)
            yield batch


def train(folder: Path, steps: int, accumulate: int = 1) -> list[int]:
    """Numbers of the batches that were trained on."""
    torch.manual_seed(1)
    model, loader, used = Net(), Watched(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    settings = config(run={"steps": steps}, step={"accumulate": accumulate}, snapshot={"every": 2})
    with Kit(open_alone(folder), model, optimizer, settings) as kit:
        for batch in kit.batches(loader):
            used.append(loader.number)
            kit.step(loss_fn, batch)
    return used


def test_they_are_left_out_just_before_their_step(tmp_path: Path) -> None:
    RunFolder(tmp_path).create()
    write_skips(RunFolder(tmp_path), [(6, 6), (3, 4)])
    assert train(tmp_path, 4) == [1, 2, 5, 6]
    assert train(tmp_path, 7) == [7, 9, 10]
    texts = [(step, text) for step, event, text in events(tmp_path) if event == "skip"]
    assert texts == [
        (2, "The batches of steps 3 to 4 are left out, as asked when the run was set back."),
        (5, "The batches of steps 6 to 6 are left out, as asked when the run was set back."),
    ]


def test_a_run_that_is_resumed_before_them_leaves_them_out_again(tmp_path: Path) -> None:
    RunFolder(tmp_path).create()
    write_skips(RunFolder(tmp_path), [(3, 3)])
    assert train(tmp_path, 2, accumulate=2) == [1, 2, 3, 4]
    assert train(tmp_path, 3, accumulate=2) == [7, 8]


def test_nothing_is_left_out_inside_a_step() -> None:
    at: list[int | None] = [1, None, 2, None]
    skipping = Skipping([(2, 3)], accumulate=2, before=lambda: at.pop(0) if at else None, say=lambda *_: None)
    assert list(skipping.walk(iter(range(8)))) == [0, 1, 6, 7]


def test_a_list_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    assert read_skips(run) == []
    run.skips.write_text("[[1]]")
    with pytest.raises(RunFolderError, match="list of batches to leave out cannot be read"):
        read_skips(run)

"""A script that goes on where the disk is full hears of the disk, and of nothing else."""

from __future__ import annotations

import contextlib
import logging
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from small_runs import Net, batches, loss_fn

import trainingkit as tk
from trainingkit.core.errors import CheckpointError, TrainingKitError
from trainingkit.core.logging import to_file
from trainingkit.core.outcome import Outcome

PAGE = 4096


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system that has room for a few small snapshots and the page."""
    folder, threads = tmp_path / "disk", torch.get_num_threads()
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", folder]
    mounted = subprocess.run(command, check=False, capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    yield folder
    torch.set_num_threads(threads)
    subprocess.run(["umount", "-l", folder], check=True)


def script(folder: Path, steps: int, kind: type[torch.optim.Optimizer] = torch.optim.AdamW) -> None:
    torch.manual_seed(1)
    model = Net(0.0)
    settings = {"run": {"steps": steps, "folder": str(folder), "threads": 1}, "snapshot": {"every": 2}}
    with tk.attach(model, kind(model.parameters(), lr=0.01), settings) as kit:  # type: ignore[call-arg]
        for batch in kit.batches(batches(7)):
            kit.step(loss_fn, batch)


def fill(folder: Path, free: int) -> None:
    """Leave that many pages, and no room in the last page of a file that is there."""
    with open(folder / "ballast", "ab", buffering=0) as handle, contextlib.suppress(OSError):
        while True:
            handle.write(bytes(PAGE))
    with open(folder / "ballast", "rb+") as handle:
        handle.truncate(handle.seek(0, 2) - free * PAGE)


@pytest.mark.parametrize("free", [0, 1, 4])
def test_the_disk_is_what_a_person_hears_of(small_disk: Path, free: int, capsys: pytest.CaptureFixture[str]) -> None:
    run = small_disk / "run"
    script(run, 3)
    fill(small_disk, free)
    with pytest.raises(TrainingKitError) as caught:
        script(run, 9)
    assert "the disk is full" in caught.value.problem or "No space left" in caught.value.problem
    assert "ree space" in str(caught.value.next_step) or "resume" in str(caught.value.next_step)
    capsys.readouterr()
    (small_disk / "ballast").unlink()
    script(run, 9)


def test_an_outcome_that_cannot_be_written_does_not_hide_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    threads = torch.get_num_threads()
    script(tmp_path, 3)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Outcome, "write", full)
    with pytest.raises(CheckpointError, match="The optimizer is not of the class"):
        script(tmp_path, 6, torch.optim.SGD)
    assert "the outcome of rank 0 cannot be written: " in caplog.text
    torch.set_num_threads(threads)


def test_a_log_that_cannot_be_written_is_closed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = list(logging.getLogger().handlers)
    undo = to_file(tmp_path / "log")
    mine = next(handler for handler in logging.getLogger().handlers if handler not in before)

    def full() -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(mine, "close", full)
        undo()
    mine.close()
    assert logging.getLogger().handlers == before

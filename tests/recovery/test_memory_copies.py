"""Snapshots in memory belong to one folder: a copy has none, a renamed folder keeps its own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from trainingkit.recovery.memory import (
    ID_FILE,
    folder_of_run,
    former_folders,
    has_memory,
    leave_memory,
    left_in_memory,
    steps_in_memory,
)

STEP = Path("rank-0") / "step-00000012"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run's folder of snapshots, set back once, with a snapshot of step 12 in memory."""
    snapshots = tmp_path / "run" / "snapshots"
    snapshots.mkdir(parents=True)
    folder_of_run(snapshots, base=tmp_path)
    leave_memory(snapshots)
    (folder_of_run(snapshots, base=tmp_path) / STEP).mkdir(parents=True)
    assert steps_in_memory(snapshots, base=tmp_path) == [12]
    return snapshots


def test_a_copy_has_no_memory_and_leaves_that_of_the_original(tmp_path: Path, run: Path) -> None:
    shutil.copytree(run.parent, tmp_path / "copy")
    copy = tmp_path / "copy" / "snapshots"
    assert (copy / ID_FILE).read_text() == (run / ID_FILE).read_text(), "the name came along"
    assert not has_memory(copy) and not left_in_memory(copy, base=tmp_path)
    leave_memory(copy)
    assert former_folders(copy, base=tmp_path) == [], "a set-back of the copy frees nothing of the original"
    own = folder_of_run(copy, base=tmp_path)
    assert own != folder_of_run(run, base=tmp_path) and own == folder_of_run(copy, base=tmp_path)
    assert former_folders(copy, base=tmp_path) == [], "they would be emptied when the copy is resumed"
    assert steps_in_memory(run, base=tmp_path) == [12] and len(former_folders(run, base=tmp_path)) == 1


def test_a_renamed_run_keeps_its_memory(tmp_path: Path, run: Path) -> None:
    before = folder_of_run(run, base=tmp_path)
    moved = run.parent.rename(tmp_path / "other") / "snapshots"
    assert folder_of_run(moved, base=tmp_path) == before and steps_in_memory(moved, base=tmp_path) == [12]


@pytest.mark.parametrize("content", ["", "a5e6\n", "one:2\na5e6"])
def test_a_name_that_is_tied_to_no_folder_does_not_count(tmp_path: Path, run: Path, content: str) -> None:
    (run / ID_FILE).write_text(content)
    assert not has_memory(run)
    assert not left_in_memory(run, base=tmp_path)
    assert folder_of_run(run, base=tmp_path).name != "trainingkit-a5e6"

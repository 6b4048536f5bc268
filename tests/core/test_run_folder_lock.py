"""One job at a time in a run folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainingkit.core.errors import RunFolderError
from trainingkit.core.files import write_atomic
from trainingkit.core.runfolder import RunFolder


def test_a_second_job_in_a_run_folder_is_refused(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    with run.locked(), pytest.raises(RunFolderError, match="Another job is at work"), RunFolder(tmp_path).locked():
        pytest.fail("two jobs held one folder")
    with run.locked():
        assert (tmp_path / ".lock").exists()


def test_what_is_no_file_is_not_replaced_by_one(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(FileExistsError, match="not a regular file"):
        write_atomic(tmp_path / "folder", "text")
    assert (tmp_path / "folder").is_dir()

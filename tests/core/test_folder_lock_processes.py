"""A job with two holders, launcher and rank 0: whoever of them lives keeps others out."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from trainingkit.core import folderlock
from trainingkit.core.errors import RunFolderError
from trainingkit.core.folderlock import hold

HOLDER = """
import sys
from pathlib import Path
from trainingkit.core.folderlock import hold
with hold(Path(sys.argv[1]), shared=sys.argv[2] == "shared", joins=sys.argv[2] == "joins"):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def holder(path: Path, how: str) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock until it is killed."""
    command = [sys.executable, "-c", HOLDER, str(path), how]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


def refused(path: Path, *, shared: bool = False, joins: bool = False) -> bool:
    try:
        with hold(path, shared=shared, joins=joins):
            return False
    except RunFolderError as error:
        assert (error.problem, error.found) == ("Another job is at work in this run folder.", str(path.parent))
        return True


def test_a_launcher_that_is_killed_leaves_the_folder_to_its_worker(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    with holder(path, "shared") as launcher, holder(path, "joins") as worker:
        assert refused(path) and refused(path, shared=True)
        launcher.send_signal(signal.SIGKILL)
        launcher.wait()
        assert refused(path) and refused(path, shared=True), "the worker lives"
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        assert not refused(path)


def test_nobody_joins_a_job_of_one(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    with holder(path, "alone"):
        assert refused(path) and refused(path, joins=True)


def test_a_job_that_ends_in_time_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / ".lock"
    with holder(path, "alone") as other:

        def end(_: float) -> None:
            other.kill()
            other.wait()

        monkeypatch.setattr(folderlock.time, "sleep", end)
        with hold(path, wait_s=60.0):
            assert other.returncode is not None
        assert not refused(path)


def test_a_file_system_without_locks_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def cannot(*_: object) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(folderlock.fcntl, "flock", cannot)
    with hold(tmp_path / ".lock"):
        assert "a second job in it would not be seen" in caplog.text


def test_a_lock_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / ".lock").mkdir()
    with (
        pytest.raises(RunFolderError, match=r"The run folder cannot be locked: Is a directory\."),
        hold(tmp_path / ".lock"),
    ):
        pytest.fail("a folder was locked")

"""A full disk while saving: said, training goes on, tried again. Only the last save must go well: else exit code 1, and
earlier snapshots are whole.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_runs import losses, nobody_left, recipe, running, saved_step

from ranks import until
from ranks.cli import run_cli

SIZE = "4m"
"""One snapshot of the test's model takes about 0.8 MB: the first fits, and what the ballast leaves is too little."""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", folder], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_disk_that_stays_full_ends_the_run_and_keeps_what_was_saved(small_disk: Path, workers: int) -> None:
    path = recipe(small_disk, steps=40, every=4, workers=workers)
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(2_000_000))
    finished = run_cli(["train", str(path)], cwd=small_disk)
    assert finished.code == 1, finished.stdout + finished.stderr
    assert "The snapshot could not be written: the disk is full." in finished.stderr
    assert "field:     snapshots" in finished.stderr
    assert "free for one more snapshot" in finished.stderr
    assert (
        "next step: Free space or use another run folder, then resume; earlier snapshots are intact." in finished.stderr
    )
    told, _, about_the_page = finished.stderr.partition("warning: The page cannot be written")
    assert told.count("next step:") == 1 and about_the_page.count("next step:") <= 1
    assert "continue:  trainingkit resume run" in finished.stderr
    assert "Traceback" not in finished.stderr
    assert nobody_left(finished.marker)
    assert "Training goes on; the next save tries again." in finished.stdout and "step 40/40" in finished.stdout
    assert saved_step(small_disk / "run") in (4, 8)
    ballast.unlink()
    resumed = run_cli(["resume", "run"], cwd=small_disk)
    assert resumed.code == 0, resumed.stdout + resumed.stderr
    assert sorted(losses(small_disk / "run")) == list(range(1, 41))


def test_room_that_is_made_in_time_is_used(small_disk: Path) -> None:
    path = recipe(small_disk, steps=60, every=4, workers=1, pause_s=0.05)
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(2_000_000))
    with running(["train", str(path)], small_disk) as run:
        until(lambda: "the next save tries again" in run.stdout(), deadline_s=90, what="a save that fails")
        ballast.unlink()
        finished = run.wait(60)
    assert finished.code == 0, finished.stdout + finished.stderr
    assert saved_step(small_disk / "run") == 60
    assert sorted(losses(small_disk / "run")) == list(range(1, 61))

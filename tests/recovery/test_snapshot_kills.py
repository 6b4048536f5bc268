"""SIGKILL before each change to the filesystem, and at random moments: the newest whole snapshot always loads."""

import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).with_name("kill_children.py")


def deaths(*arguments):
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *map(str, arguments)], capture_output=True, text=True, timeout=90, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return [int(number) for number in done.stdout.split()]


def test_killed_before_any_change_on_disk(tmp_path):
    numbers = deaths("every", tmp_path, "new", "again", "mended")
    assert len(numbers) == 3
    assert min(numbers) > 10


def test_killed_at_random_moments(tmp_path):
    assert deaths("random", tmp_path / "snapshots", 12, 1) == [12]

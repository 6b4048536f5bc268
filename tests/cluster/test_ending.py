"""A worker ends with the code of its work, and what it wrote is there, whatever its threads are at."""

from __future__ import annotations

import subprocess
import sys

import pytest

BUSY = """
import threading, torch
from trainingkit.cluster.ending import run_and_exit
ready = threading.Event()
def work():
    big = torch.randn(700, 700)
    while True:
        big @ big
        ready.set()
def main():
    threading.Thread(target=work, daemon=True).start()
    ready.wait()
    print("done", end="")
run_and_exit(main)
"""


def ended(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)


def test_a_thread_in_native_code_does_not_matter() -> None:
    done = ended(BUSY)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done", "")


def test_a_closed_stdout_does_not_matter() -> None:
    body = "def main():\n    import sys\n    sys.stdout.close()\n"
    assert ended(f"from trainingkit.cluster.ending import run_and_exit\n{body}run_and_exit(main)\n").returncode == 0


@pytest.mark.parametrize(
    ("line", "code", "text"),
    [
        ("raise ValueError('too many')", 1, "ValueError: too many"),
        ("raise SystemExit(3)", 3, ""),
        ("raise SystemExit('no link')", 1, "no link"),
        ("raise SystemExit()", 0, ""),
        ("raise KeyboardInterrupt", 1, "KeyboardInterrupt"),
    ],
)
def test_what_went_wrong_is_said(line: str, code: int, text: str) -> None:
    done = ended(f"from trainingkit.cluster.ending import run_and_exit\ndef main():\n    {line}\nrun_and_exit(main)\n")
    assert done.returncode == code
    assert text in done.stderr
    assert ("Traceback" in done.stderr) == (text.startswith(("ValueError", "Keyboard")))

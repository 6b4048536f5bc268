"""The example runs under torchrun as it stands, plain and with its one line; both learn, and the line saves bytes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "ddp_one_line.py"


def torchrun(*options: str) -> tuple[list[float], int, int]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(EXAMPLE)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, *options], env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    losses = [float(found) for found in re.findall(r"loss ([0-9.]+)", done.stdout)]
    sent, plain = re.search(r"bytes per step: (\d+) \(plain DDP: (\d+)\)", done.stdout).groups()
    return losses, int(sent), int(plain)


def test_plain_and_with_the_one_line():
    losses, sent, plain = torchrun("--steps", "30")
    assert sent == plain
    assert losses[-1] < losses[0] - 1.5
    squeezed, fewer, same = torchrun("--steps", "30", "--compress")
    assert same == plain
    assert fewer < plain / 3
    assert abs(squeezed[-1] - losses[-1]) < 0.05

"""A sweep that is stopped leaves no process, whether it could say goodbye or not."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from ranks import until
from ranks.cli import orphans, start_cli

SWEEP = ["bench", "frontier", "--tasks", "decoder", "--schemes", "int4", "--seeds", "1", "--jobs", "2"]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_stopped_sweep_leaves_no_process(tmp_path: Path, how: signal.Signals) -> None:
    run = start_cli([*SWEEP, "--cache", "cache"], cwd=tmp_path)
    until(lambda: len(orphans(run.marker)) >= 3, deadline_s=60, what="the processes of the sweep")
    run.signal(how)
    assert run.wait(deadline_s=60).code != 0
    until(lambda: not orphans(run.marker), deadline_s=30, what="the end of all processes")

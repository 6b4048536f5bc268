"""Hosts of a torchrun job, played by one agent each: one dies with its worker, and the other goes on."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from cli_runs import END_S, START_S, losses
from cli_witness import used
from test_cli_restarts import expected, witnessed

from ranks import until
from trainingkit.core.runfolder import RunFolder

TESTS = Path(__file__).parents[1]


def everyone(agent: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """An agent and its workers."""
    top = psutil.Process(agent.pid)
    return [top, *top.children(recursive=True)]


@contextmanager
def hosts(recipe: Path, count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """One agent for each host, all of which may leave but the first, that serves the rendezvous."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = ["--nnodes", f"1:{count}", "--nproc-per-node", "1", "--max-restarts", "3"]
    words += ["--rdzv-backend", "c10d", "--rdzv-id", "job"]
    words += ["--rdzv-endpoint", f"127.0.0.1:{port}", "-m", "trainingkit", "train", str(recipe)]
    environment = {**os.environ, "PYTHONPATH": f"{TESTS}:{Path(__file__).parent}", "OMP_NUM_THREADS": "1"}
    agents = []
    for number in range(count):
        conf = ["--rdzv-conf", f"is_host={int(number == 0)},last_call_timeout=3"]
        output = open(recipe.parent / f"agent-{number}.txt", "wb")  # noqa: SIM115 - the process has it
        command = [sys.executable, "-m", "torch.distributed.run", *conf, *words]
        agents.append(subprocess.Popen(command, cwd=recipe.parent, env=environment, stdout=output, stderr=output))
        output.close()
    try:
        yield agents
    finally:
        for agent in agents:
            if agent.poll() is None:
                for process in everyone(agent):
                    process.kill()
            agent.wait()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_host_dies_and_the_other_goes_on(tmp_path: Path) -> None:
    """Without any setting of torchrun's store; the same folder, the same order of samples."""
    path = witnessed(tmp_path, workers=2, steps=60, codec="all|int4(block=64)")
    path.write_text(path.read_text().replace("args = { folder", "args = { pause_s = 0.1, folder"))
    run = RunFolder(tmp_path / "run")
    with hosts(path, 2) as (first, second):
        until(lambda: max(losses(run.root), default=0) >= 6, deadline_s=START_S, what="six steps of two hosts")
        for process in everyone(second):
            process.send_signal(signal.SIGKILL)
        code = first.wait(START_S + END_S)
    assert code == 0, (tmp_path / "agent-0.txt").read_text()
    by_step, begun = used(tmp_path, run)
    assert [record.world_size for record in begun] == [2, 1] and begun[1].start_step > 0
    assert sorted(by_step) == list(range(1, 61))
    seen = [index for ranks in by_step.values() for part in ranks for index in part]
    assert seen == expected(path, len(seen))

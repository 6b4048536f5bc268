"""Ranks of one job on the hosts: environment, output, the first failure, the deadline."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import pytest

from ranks import until
from trainingkit.core.errors import ClusterError, ConfigError
from trainingkit.netlab import Lab, LabSpec

END_S = 30.0
TELL = "import json, os; print(json.dumps(dict(os.environ)))"


def python(code: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", code]


def test_each_rank_has_its_place_on_its_host(plain_lab: Lab):
    result = plain_lab.launch(python(TELL), env={"EXTRA": "yes"}, deadline_s=END_S)
    environments = [json.loads(end.stdout) for end in result.ends]
    assert [env["RANK"] for env in environments] == ["0", "1"]
    for env in environments:
        assert env["WORLD_SIZE"] == "2"
        assert env["LOCAL_RANK"] == "0"
        assert env["MASTER_ADDR"] == plain_lab.address(0)
        assert env["GLOO_SOCKET_IFNAME"] == "eth0"
        assert int(env["OMP_NUM_THREADS"]) >= 1
        assert env["EXTRA"] == "yes"
    assert environments[0]["MASTER_PORT"] == environments[1]["MASTER_PORT"]
    again = plain_lab.launch(python(TELL), world_size=1, deadline_s=END_S)
    assert len(again.ends) == 1
    assert json.loads(again.ends[0].stdout)["MASTER_PORT"] != environments[0]["MASTER_PORT"]


def test_lines_come_as_they_are_written(plain_lab: Lab):
    lines: list[tuple[int, str, str]] = []
    code = "import sys; print('out'); print('err', file=sys.stderr); sys.stdout.write('no end')"
    plain_lab.launch(python(code), deadline_s=END_S, on_line=lambda *line: lines.append(line))
    each = [("stderr", "err"), ("stdout", "no end"), ("stdout", "out")]
    assert sorted(lines) == [(rank, *line) for rank in (0, 1) for line in each]


def test_the_rank_that_failed_first_is_named_with_its_stderr(plain_lab: Lab):
    code = "import os, sys, time\nif os.environ['RANK'] == '1': raise SystemExit('the disk is full')\ntime.sleep(60)"
    start = time.monotonic()
    with pytest.raises(ClusterError) as caught:
        plain_lab.launch(python(code), deadline_s=END_S)
    assert time.monotonic() - start < 10
    message = str(caught.value)
    assert "Rank 1 on h1 failed first" in message
    assert "rank 1 | the disk is full" in message
    assert "exit code 1" in message


STUBBORN = """
import os, signal, socket, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
place = (os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT']))
if os.environ['RANK'] == '0':
    with socket.create_server(place) as server:
        server.accept()
    os.kill(os.getpid(), signal.SIGKILL)
while True:
    try:
        socket.create_connection(place)
        break
    except ConnectionRefusedError:
        time.sleep(0.01)
time.sleep(60)
"""


def test_a_rank_that_is_killed_and_one_that_ignores_sigterm(plain_lab: Lab):
    result = plain_lab.launch(python(STUBBORN), deadline_s=END_S, grace_s=0.2, check=False)
    assert result.first_failed is not None
    assert result.first_failed.rank == 0
    assert [end.code for end in result.ends] == [-signal.SIGKILL, -signal.SIGKILL]
    with pytest.raises(ClusterError, match="killed by SIGKILL"):
        result.check()


def test_the_deadline_ends_all_and_says_who_was_still_running(plain_lab: Lab):
    code = "import os, time; print('I am', os.environ['RANK'], flush=True); time.sleep(60 * int(os.environ['RANK']))"
    with pytest.raises(ClusterError) as caught:
        plain_lab.launch(python(code), deadline_s=0.7)
    message = str(caught.value)
    assert "did not end before its deadline" in message
    assert "still running: rank 1" in message
    assert "rank 1 | I am 1" in message
    assert "rank 0 |" not in message


def test_what_a_rank_leaves_running_is_ended_with_it(plain_lab: Lab):
    code = "import subprocess; print(subprocess.Popen(['sleep', '60']).pid)"
    start = time.monotonic()
    result = plain_lab.launch(python(code), deadline_s=END_S)
    assert time.monotonic() - start < 10
    left = " ".join(end.stdout.strip() for end in result.ends)
    look = ["sh", "-c", f"for pid in {left}; do kill -0 $pid && exit 1; done; exit 0"]

    def gone() -> bool:
        return plain_lab.run(0, look, stderr=subprocess.DEVNULL).wait(END_S) == 0

    until(gone, deadline_s=END_S, what="the end of what the ranks have started")


def test_more_ranks_than_hosts_are_refused(plain_lab: Lab):
    with pytest.raises(ConfigError, match="at most one rank on each host") as caught:
        plain_lab.launch(["true"], world_size=3)
    assert caught.value.expected == "1 to 2"


@pytest.mark.usefixtures("can_lab")
def test_gloo_meets_and_reduces_over_the_shaped_link():
    code = (
        "import torch, torch.distributed as dist\n"
        "torch.set_num_threads(1)\n"
        "dist.init_process_group('gloo')\n"
        "x = torch.full((500_000,), float(dist.get_rank() + 1))\n"
        "dist.all_reduce(x)\n"
        "print(x.min().item(), x.max().item())\n"
        "dist.destroy_process_group()"
    )
    with Lab(LabSpec(hosts=2, link="100mbit")) as lab:
        result = lab.launch([sys.executable, "-c", code], deadline_s=60)
        assert [end.stdout for end in result.ends] == ["3.0 3.0\n"] * 2
        for host in lab.hosts:
            assert 2_000_000 < lab.counters(host).sent_bytes < 2_300_000

"""The network bench through the command line, in a real lab: figures, bytes, and a contender that kills its process."""

from __future__ import annotations

import json
import os

import pytest

from ranks.cli import orphans, run_cli
from trainingkit.bench.result import read
from trainingkit.cli.bench import bench_network
from trainingkit.cli.bench_end import without_options
from trainingkit.core.errors import ConfigError

SITE = """
import sys
if "trainingkit.bench.network.worker" in sys.orig_argv or "bench" in sys.argv or "bench" in sys.orig_argv:
    from trainingkit.bench.contender import CONTENDERS, Contender, data_parallel

    @CONTENDERS.register("crash")
    def build(model, setting):
        import os, signal, torch.distributed as dist
        steps = []
        def finish():
            steps.append(1)
            if len(steps) == 4 and dist.get_rank() == 1:
                os.kill(os.getpid(), signal.SIGABRT)
            return 1
        return Contender("crash", data_parallel(model, setting.group), finish=finish)
"""
SMALL = ["--hosts", "2", "--scale", "tiny", "--rounds", "5", "--minutes", "0.05", "--loss-steps", "10"]


@pytest.mark.skipif(os.geteuid() != 0, reason="a lab of this test needs root")
def test_a_contender_that_kills_its_process_is_a_row_and_the_bytes_are_true(tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(SITE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    argv = ["bench", "network", *SMALL, "--link", "50mbit", "--codec", "all|int8", "--contenders", "plain,crash"]
    done = run_cli([*argv, "--json", "net.json", "--page", "net.html"], cwd=tmp_path, deadline_s=110)
    assert done.code in (0, 1), done.stderr
    assert not orphans(done.marker)
    result = read(tmp_path / "net.json")
    rows = {row["contender"]: row for row in result.rows}
    assert rows["crash"]["turns"] == 0
    assert rows["crash"]["error"].startswith("it ended the process. Rank 1 on h1 failed first")
    assert rows["squeezed"]["turns"] >= 3
    for name in ("plain", "squeezed"):
        assert 1.0 < rows[name]["wire_bytes"] / rows[name]["said_bytes"] < 1.25, name
        assert rows[name]["loss_equal_steps"] < 5.5
    assert rows["squeezed"]["wire_bytes"] < 0.4 * rows["plain"]["wire_bytes"]
    assert rows["none"]["wire_bytes"] < 3000
    assert result.facts["rho"] > 1
    assert result.command == "trainingkit " + " ".join(argv).replace("all|int8", "'all|int8'")
    assert "kept_share" in done.stdout
    assert "warm-up: " in done.stderr
    assert json.loads((tmp_path / "net.json").read_text())["checks"][0]["name"] == "kept_share"
    assert (tmp_path / "net.html").stat().st_size > 1_000_000


@pytest.mark.parametrize(
    ("options", "text", "field"),
    [
        ({"scale": "tini"}, "no scale called 'tini'", "--scale"),
        ({"contenders": "plain,powersgd-3"}, "no contender called 'powersgd-3'", "--contenders"),
        ({"delay": "soon"}, "not a quantity", "--delay"),
        ({"link": "100mbps"}, "not a link rate", "--link"),
        ({"codec": "all|int5"}, "int5", "--codec"),
        ({"hosts": 1}, "two hosts", "--hosts"),
        ({"rounds": 0}, "value that cannot be used", "rounds"),
    ],
)
def test_bad_options_are_refused_before_a_lab_is_made(options, text, field):
    with pytest.raises(ConfigError, match=text) as caught:
        bench_network(**options)
    assert caught.value.field == field


def test_the_command_is_noted_without_its_outputs():
    words = ["bench", "network", "--json", "--page", "--link=1gbit", "--page=x.html", "--seed", "3"]
    assert without_options(words, ("--json", "--page")) == ["bench", "network", "--link=1gbit", "--seed", "3"]

"""`trainingkit advise` as people start it: numbers, a recipe on real processes, a launch of somebody else, refusals."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from ranks.cli import orphans, run_cli, start_cli
from trainingkit.cli.advise import advise
from trainingkit.core.errors import ConfigError

NUMBERS = ["--params", "1e8", "--step", "2s", "--ranks", "8"]
SMALL = ["--set", "model.layers=1", "--set", "model.hidden=64", "--set", "model.feed_forward=128"]
SMALL += ["--set", "data.seq_len=32", "--set", "batch.size=2"]


def test_numbers_give_a_table_a_sentence_and_json(tmp_path: Path):
    done = run_cli(["advise", *NUMBERS, "--link", "1gbit", "--json", "a.json"], cwd=tmp_path, deadline_s=60)
    assert done.code == 0, done.stderr
    found = json.loads((tmp_path / "a.json").read_text())
    assert found["rho"] == pytest.approx(700e6 / (125e6 * 1448 / 1514) / 2, rel=0.01)
    best = found["rungs"][found["best"]]
    assert best["vs_plain"] > 2 and best["hides"]
    assert re.search(rf"best\s+{re.escape(best['rung'])}", done.stdout)
    assert found["sentences"][0] in done.stdout.replace("\n", " ")
    assert "rho     2.9" in done.stdout and done.stderr == ""


def test_on_a_fast_link_plain_ddp_is_advised(capsys: pytest.CaptureFixture[str]):
    assert advise(params=1e8, step="2s", ranks=8, link="400gbit") == 0
    shown = capsys.readouterr().out
    assert "Your link is fast enough: plain DDP keeps" in shown
    assert re.search(r"best\s+plain DDP", shown)


def test_a_recipe_is_measured_by_two_processes_for_a_job_of_four(tmp_path: Path):
    argv = ["advise", *SMALL, "--workers", "2", "--link", "1mbit", "--delay", "5ms", "--ranks", "4"]
    done = run_cli([*argv, "--json", "a.json"], cwd=tmp_path, deadline_s=110)
    assert done.code == 0, done.stderr
    assert not orphans(done.marker)
    found = json.loads((tmp_path / "a.json").read_text())
    assert found["ranks"] == 4 and found["notes"]["measured_on"] == 2
    assert found["link"]["latency_s"] == 0.005 and found["window"]["compute_s"] > 0
    plain, *others = found["rungs"]
    assert plain["sent_bytes"] == pytest.approx(2 * 3 / 4 * 4 * found["notes"]["parameters"])
    assert all(row["code_s"] > 0 and row["sent_bytes"] < plain["sent_bytes"] for row in others)
    assert plain["step_s"] > plain["sent_bytes"] / found["link"]["bytes_per_s"] > found["none_s"]
    assert "computing: " in done.stderr
    assert list(tmp_path.iterdir()) == [tmp_path / "a.json"]


@pytest.mark.slow
def test_under_torchrun_rank_0_prints_what_the_ranks_measured(tmp_path: Path):
    command = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    run = start_cli(["advise", *SMALL], cwd=tmp_path, command=(*command, "-m", "trainingkit"))
    done = run.wait(deadline_s=110)
    assert done.code == 0, done.stderr
    assert done.stdout.count("What each rung would cost") == 1
    assert "measured between 2 ranks" in done.stdout
    assert not orphans(done.marker)


@pytest.mark.parametrize(
    ("options", "field", "found", "next_step"),
    [
        ({"params": 7e9}, "--params", "no --step and no --link and no --ranks", "--params 7e9"),
        ({"params": 7e9, "lab": 4}, "--params", "a recipe, --workers or --lab", "Leave one out"),
        ({"params": 0.0, "step": "1s", "link": "1gbit", "ranks": 2}, "--params", "0", "--params 7e9"),
        ({"params": 1e9, "step": "0s", "link": "1gbit", "ranks": 2}, "--step", "'0s'", "--step 2.5s"),
        ({"params": 1e9, "step": "1s", "link": "unshaped", "ranks": 2}, "--link", "'unshaped'", "Name the rate"),
        ({"params": 1e9, "step": "1s", "link": "1gbit", "ranks": 1}, "--ranks", "1", "One rank sends nothing"),
        (
            {"params": 1e9, "step": "1s", "link": "1gbit", "ranks": 2, "backward_share": 1.0},
            "--backward-share",
            "1",
            "",
        ),
        ({"step": "1s"}, "--params", "nothing, but --step", "--params 7e9"),
        ({"ranks": 4}, "--link", "nothing, but --ranks or --delay", "--link 25mbit"),
        ({"lab": 1}, "--lab", "1", "one host sends nothing"),
        ({"lab": 2, "workers": 2}, "--lab", "--workers or --ranks, too", "one rank on each host"),
        ({"link": "25mbps"}, "--link", "'25mbps'", "kbit, mbit or gbit"),
        ({"recipe": "defualt"}, "RECIPE", "'defualt'", "Did you mean 'default'?"),
        ({"workers": 1}, "workers", "1", "--ranks"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_started(options, field, found, next_step):
    with pytest.raises(ConfigError) as caught:
        advise(**options)
    assert caught.value.field == field
    assert found in str(caught.value.found) and next_step in str(caught.value.next_step)

"""`trainingkit plan` and `plan score` as processes: table, JSON, page, plan.toml, exit codes, no PyTorch."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from planner_rows import GPT, write

from ranks.cli import run_cli


def test_table_page_and_plan(tmp_path: Path) -> None:
    words = "plan --model gpt3-175b --cluster a100-80g:16x8 --target-tokens 300B --top 3 --page p.html -o plan.toml"
    done = run_cli([*words.split(), "--explain"], cwd=tmp_path, deadline_s=60)
    assert done.code == 0, done.stderr
    assert "gpt3-175b (175 B parameters) on 16 x 8 a100-80g" in done.stdout
    assert "One choice away from the best plan" in done.stdout
    assert "300 B tokens take at least" in done.stdout
    table = tomllib.loads((tmp_path / "plan.toml").read_text())
    layout = table["layout"]
    assert layout["tp"] * layout["pp"] * layout["dp"] * layout["cp"] == 128
    assert sum(sum(line) for line in layout["layers"]) == 96
    assert table["runs_with_train"] is False
    page = (tmp_path / "p.html").read_text()
    assert "Who works when" in page
    assert "Memory by stage" in page
    assert "src=" not in page.split("<script")[0]


def test_squeezed_exchange_is_tried_when_named(tmp_path: Path) -> None:
    words = ["plan", "--model", "gpt2", "--cluster", "rtx4090:4x1", "--codecs", "none;all|int4(block=64)"]
    done = run_cli([*words, "--fix", "shard=0", "--top", "4"], cwd=tmp_path, deadline_s=60)
    assert done.code == 0, done.stderr
    assert "all|int4(block=64)" in done.stdout


def test_json_and_impossible_headlines(tmp_path: Path) -> None:
    words = "plan --model gpt3-175b --cluster a100-80g:128x8 --target-tokens 300B --top 2 --json"
    done = run_cli(words.split(), cwd=tmp_path, deadline_s=60)
    found = json.loads(done.stdout)
    assert len(found["plans"]) == 2
    text = " ".join(found["limits"])
    assert "39.5 B tokens in 36 hours" in text
    assert "300 B tokens take at least 11.4 days" in text
    assert found["target"]["days"][0] > 11.4


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("--model lama3-8b --cluster h100:1x8", "Did you mean 'llama3-8b'?"),
        ("--model llama3-8b --cluster h101:1x8", "Did you mean 'h100'?"),
        ("--model llama3-405b --cluster h100:1x1", "No plan fits"),
        ("--model llama3-8b --cluster nowhere.toml", "trainingkit probe"),
        ("--model gpt2 --cluster h100:1x8 --target-tokens many", "--target-tokens"),
        ("--model gpt2 --cluster h100:1x8 --every often", "--every 1,8"),
        ("--model gpt2 --cluster h100:1x8 --codecs int99", "int99"),
        ("--model gpt2 --cluster h100:1x8 --fix tp=5", "--fix tp=4"),
        ("--model gpt2 --cluster h100:1x8 -o none/plan.toml", "Make the folder"),
        ("score nowhere.csv", "cannot be read"),
    ],
)
def test_bad_input_ends_with_two(tmp_path: Path, words: str, text: str) -> None:
    done = run_cli(["plan", *words.split()], cwd=tmp_path, deadline_s=60)
    assert done.code == 2
    assert text in done.stderr


def test_score_prints_sources_and_writes_json(tmp_path: Path) -> None:
    write(tmp_path / "runs.csv", GPT, {**GPT, "id": "A2", "gpu": "TPUv4"})
    done = run_cli(["plan", "score", "runs.csv", "--json", "score.json", "--rows"], cwd=tmp_path, deadline_s=60)
    assert done.code == 0, done.stderr
    assert "Somebody (2021)" in done.stdout
    assert "device not in the catalogue: TPUv4" in done.stdout
    found = json.loads((tmp_path / "score.json").read_text())
    assert set(found["checks"]) >= {"mape_stock", "mape_factor", "mape_loso", "mem_mape", "oom_called_fit"}
    assert [row["id"] for row in found["rows"]] == ["A1"]
    assert found["checks"]["mem_mape"] is None


def test_the_planner_never_loads_torch() -> None:
    code = "import sys, trainingkit as tk; tk.plan('gpt2', 'h100:1x8'); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)

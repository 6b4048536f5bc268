"""The page as a file: it holds all, escapes all, survives odd runs, and stays small and quick to build."""

from __future__ import annotations

import json
import re
import time

import pytest
import report_runs as runs

from trainingkit.cli.report import report
from trainingkit.core.errors import RunFolderError
from trainingkit.core.records import Record
from trainingkit.report import read_run, render, write
from trainingkit.report.page import script_json

NASTY = "</script><script>alert(1)</script><b>ü\u2028{{ 7*7 }}"


def figures_in(page: str) -> dict[str, dict]:
    found = re.search(r'<script type="application/json" id="figures">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return {figure["name"]: figure for figure in json.loads(found[1])}


def outside_scripts(page: str) -> str:
    return re.sub(r"<(script|style)[^>]*>.*?</\1>", "", page, flags=re.DOTALL)


def test_a_usual_run_has_all_plots_all_tables_and_all_answers(tmp_path):
    page = write(runs.realistic(tmp_path / "a-run", hidden=True)).read_text(encoding="utf-8")
    assert list(figures_in(page)) == ["loss-step", "loss-time", "throughput", "bytes", "phases", "ranks"]
    assert len(page) < 6_000_000
    text = outside_scripts(page)
    for words in (
        "a-run", "Validation bits per byte fell from 7.98", "Rank 1 on host-b was slowest", "llama, 6.3 M parameters",
        "It finished at step 160.", "kind = &#34;adamw&#34;", "AMD EPYC 9B14", "25.8 GB", "PSF-2.0", "3f3f3f",
        "4 files that are not UTF-8 were left out.", "2 cores for 2 workers.", "snapshots/step-160 is whole",
        "1 of 160 steps aborted", "What do these words mean?",
    ):  # fmt: skip
        assert words in text


def test_nothing_on_the_page_points_outside(tmp_path):
    page = write(runs.realistic(tmp_path / "run")).read_text(encoding="utf-8")
    assert not re.findall(r'(?:src|href|srcset|action)="(?!data:|#)', outside_scripts(page))
    assert "@import" not in page.split("<script", 1)[0] and "url(" not in page.split("<script", 1)[0]


def test_names_cannot_break_out_of_the_page(tmp_path):
    start = runs.start(host=NASTY, model={"name": NASTY, "parameters": 5}, data={"name": NASTY, NASTY: NASTY})
    rows: list[Record] = [start, runs.step(1), runs.step(2), runs.event(1, NASTY, NASTY), runs.evaluation(1, 2.0)]
    run = runs.make_run(tmp_path / "a & <i>b", {0: rows}, recipe=NASTY)
    page = render(read_run(run))
    assert "alert(1)</script>" not in page and "<b>ü" not in page and "<i>b" not in page
    assert "{{ 7*7 }}" in outside_scripts(page)
    traces = figures_in(page)["loss-step"]["data"]
    assert any("&lt;/script&gt;" in trace["name"] for trace in traces)


@pytest.mark.parametrize("text", ["</script>", "<!--<script>", "\u2028\u2029", "a&b", 'q"\\'])
def test_script_json_is_json_without_anything_html_reads(text):
    packed = script_json({"a": text})
    assert json.loads(packed) == {"a": text}
    assert not set("<>&\u2028\u2029") & set(packed)


NOTHING_TO_DRAW = {"no files": 6, "empty file": 6, "start only": 6, "all NaN": 2, "no time": 3}
NOTHING_TO_DRAW |= {"evaluated before any step": 4}


def odd_runs() -> dict[str, dict[int, list[Record]]]:
    nothing: list[Record] = [runs.start(), *[runs.step(n, None) for n in range(1, 4)], runs.evaluation(3, None)]
    return {
        "no files": {},
        "empty file": {0: []},
        "start only": {0: [runs.start()]},
        "one step": {0: [runs.start(), runs.step(1)]},
        "no start": {0: [runs.step(1), runs.step(2)]},
        "all NaN": {0: nothing},
        "no time": {0: [runs.step(1, step_s=0.0, phases={})]},
        "no tokens": {0: [runs.step(1, tokens=0), runs.step(2, tokens=0)]},
        "unknown phase": {0: [runs.step(1, phases={"compress": 0.5})]},
        "64 ranks": {r: [runs.start(r, 64), runs.step(1), runs.step(2)] for r in range(64)},
        "evaluated before any step": {0: [runs.start(), runs.evaluation(0, 5.0)]},
        "early stop": {0: [runs.start(), runs.step(1), runs.event(1, "early_stop", "no gain")]},
    }


@pytest.mark.parametrize("name", odd_runs())
def test_odd_runs_get_a_page_that_says_what_is_missing(tmp_path, name):
    records = odd_runs()[name]
    page = render(read_run(runs.make_run(tmp_path / "run", records, recipe=None)))
    empty = page.count('class="nothing"')
    assert len(figures_in(page)) + empty == 6
    assert empty == NOTHING_TO_DRAW.get(name, 0)
    assert "There is no recipe.toml" in page and "recipe.toml is missing" in page
    assert "NaN" not in json.dumps(figures_in(page)) and "None" not in outside_scripts(page)


def test_a_hundred_thousand_steps_are_drawn_with_few_points_in_little_time(tmp_path):
    run = runs.make_run(tmp_path / "run", {0: [runs.start(), runs.step(1, 2.0)]})
    start, step = run.metrics(0).read_text(encoding="utf-8").splitlines()
    lines = [step.replace('"step": 1,', f'"step": {n},').replace("2.0", str(1 + 1 / n)) for n in range(1, 100_001)]
    run.metrics(0).write_text("\n".join([start, *lines]), encoding="utf-8")
    begin = time.monotonic()
    page = render(read_run(run))
    assert time.monotonic() - begin < 10
    assert len(page) < 12_000_000
    figures = figures_in(page)
    assert max(len(trace["x"]) for figure in figures.values() for trace in figure["data"]) <= 2000
    assert len(figures["phases"]["data"][0]["x"]) <= 120
    assert "100 000 steps" in page


def test_the_command_writes_where_it_is_told_and_says_where(tmp_path, capsys):
    run = runs.make_run(tmp_path / "run", {0: [runs.start(), runs.step(1)]})
    report(run.root)
    assert capsys.readouterr().out == f"The page is {run.report}\n" and run.report.is_file()
    report(run.root, output=tmp_path / "other.html")
    assert (tmp_path / "other.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_folder_without_a_run_and_an_unwritable_output_are_refused(tmp_path):
    with pytest.raises(RunFolderError, match="holds no recipe"):
        report(tmp_path)
    run = runs.make_run(tmp_path / "run", {0: [runs.step(1)]})
    with pytest.raises(RunFolderError, match="page cannot be written: No such file") as caught:
        write(run, tmp_path / "nowhere" / "page.html")
    assert caught.value.field == "output" and caught.value.next_step == "Choose another file with --output FILE.html."


def test_a_page_that_training_cannot_write_is_advised_by_a_whole_command(tmp_path):
    run = runs.make_run(tmp_path / "a run", {0: [runs.step(1)]})
    run.report.mkdir()
    with pytest.raises(RunFolderError, match="page cannot be written: what is there is not a regular file") as caught:
        write(run)
    assert caught.value.field == "run.folder"
    assert f"trainingkit report '{run.root}' --output FILE.html" in str(caught.value.next_step)

"""From runs to the result, its tables, its plots, its Markdown page and its pictures."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from test_frontier_sweep import kept

from trainingkit.bench.frontier.coder import Exact
from trainingkit.bench.frontier.kept import Kept
from trainingkit.bench.frontier.reference import REFERENCES
from trainingkit.bench.frontier.scheme import Scheme
from trainingkit.bench.frontier.summary import summarise
from trainingkit.bench.result import Result, read, write
from trainingkit.cli.bench import bench_page
from trainingkit.core.errors import ConfigError
from trainingkit.report.benchmarkdown import render_markdown
from trainingkit.report.benchpage import plots_of, render_bench
from trainingkit.report.benchpictures import pictures
from trainingkit.report.benchrows import row_tables
from trainingkit.report.figures.frontiersvg import frontier_svg

NASTY = "</text><script>alert(1)</script> & co"
SCHEMES = {scheme.name: scheme for scheme in REFERENCES.values()} | {
    "small": Scheme("small", NASTY, "update", Exact, preset=True),
    "large": Scheme("large", "large", "gradient", Exact, in_package=True, spec="all|int4"),
    "bad": Scheme("bad", "bad", "gradient", Exact),
    "mu": Scheme("mu", "mu", "update", Exact, optimizer="muon"),
}


def decoder_runs() -> list[Kept]:
    values = {
        "dense": (32.0, [2.0, 2.1, 2.2]),
        "dense-muon": (32.0, [1.8, 1.8, 1.8]),
        "large": (4.5, [2.001, 2.1, 2.201]),
        "small": (1.5, [2.004, 2.106, 2.203]),
        "mu": (1.4, [1.98, 1.98, 1.98]),
        "bad": (1.0, [None, 2.1, 2.2]),
    }
    return [
        kept("decoder", name, seed, value, bits)
        for name, (bits, found) in values.items()
        for seed, value in enumerate(found)
    ]


def resnet_runs() -> list[Kept]:
    values = {"dense": (32.0, [90.0, 91.0]), "large": (4.1, [89.9, 90.9]), "small": (1.5, [80.0, 81.0])}
    return [
        kept("resnet", name, seed, value, bits)
        for name, (bits, found) in values.items()
        for seed, value in enumerate(found)
    ]


def result(runs: list[Kept] | None = None) -> Result:
    runs = decoder_runs() + resnet_runs() if runs is None else runs
    return summarise(runs, SCHEMES, workers=4, command="trainingkit bench frontier", settings={"seeds": 3})


def row(found: Result, task: str, scheme: str) -> dict:
    return next(row for row in found.rows if (row["task"], row["scheme"]) == (task, scheme))


def test_gaps_are_paired_by_seed_and_taken_to_dense_with_the_same_optimizer():
    found = result()
    assert row(found, "decoder", "small")["gaps"] == pytest.approx([0.2, 0.6 / 2.1, 0.3 / 2.2], rel=1e-4)
    assert row(found, "decoder", "mu")["gap"] == pytest.approx(10.0)
    assert row(found, "resnet", "small")["gaps"] == [10.0, 10.0]
    assert row(found, "decoder", "large")["ratio"] == pytest.approx(32 / 4.5)


def test_a_scheme_that_diverged_has_a_row_and_no_gap_and_is_on_no_frontier():
    bad = row(result(), "decoder", "bad")
    assert (bad["diverged"], bad["gap"], bad["on_frontier"]) == (1, None, False)
    assert bad["values"] == [None, 2.1, 2.2]


def test_the_frontier_is_marked_by_task():
    found = result()
    marked = {(row["task"], row["scheme"]) for row in found.rows if row["on_frontier"]}
    assert marked == {
        ("decoder", "dense"),
        ("decoder", "large"),
        ("decoder", "small"),
        ("decoder", "mu"),
        ("resnet", "dense"),
        ("resnet", "large"),
        ("resnet", "small"),
    }


def test_a_row_with_fewer_seeds_is_on_no_frontier():
    """resnet: 'large' with one lucky seed beats all, yet the line is that of the rows with two."""
    runs = [run for run in resnet_runs() if (run.scheme, run.seed) != ("large", 1)]
    lucky = [run.model_copy(update={"value": 99.0}) if run.scheme == "large" else run for run in runs]
    found = result(lucky)
    assert row(found, "resnet", "large")["gap"] == -9.0
    assert [line["scheme"] for line in found.rows if line["on_frontier"]] == ["dense", "small"]
    assert any("largest number of seeds" in note for note in found.notes)


def test_runs_on_different_data_are_not_compared():
    runs = [run.model_copy(update={"facts": {"sha256": "a" * 64}}) for run in resnet_runs()]
    assert result(runs).facts["resnet"]["torch"] == "unknown"
    runs[-1] = runs[-1].model_copy(update={"facts": {"sha256": "b" * 64}})
    with pytest.raises(ConfigError, match="resnet did not see the same data") as raised:
        result(runs)
    text = raised.value.text()
    assert "aaaaaaaaaaaa" in text
    assert "bbbbbbbbbbbb (small, seed 1)" in text
    assert "another folder with --cache" in text


def test_checks_take_the_best_scheme_with_few_enough_bits():
    found = result()
    checks = {check.name: check for check in found.checks}
    assert set(checks) == {"decoder_gap", "resnet_gap", "resnet_kept_at_87"}
    assert checks["decoder_gap"].value == pytest.approx(row(found, "decoder", "small")["gap"])
    assert checks["decoder_gap"].holds == (row(found, "decoder", "small")["gap_high"] <= 0.5)
    assert checks["resnet_gap"].value == 10.0
    assert not checks["resnet_gap"].holds
    assert checks["resnet_kept_at_87"].value == pytest.approx(100 * (89.9 / 90 + 90.9 / 91) / 2)
    assert checks["resnet_kept_at_87"].holds
    assert found.facts["best"]["decoder_gap"].startswith(NASTY)
    assert any(note.startswith("bert_gap is not judged") for note in found.notes)


def test_a_check_with_one_seed_does_not_hold():
    found = result([run for run in decoder_runs() if run.seed == 0])
    assert [check.low for check in found.checks] == [None]
    assert not found.holds


def test_the_scheme_with_all_seeds_is_judged_and_not_a_lucky_one_with_few():
    runs = [run for run in decoder_runs() if run.scheme != "mu"]
    runs.append(kept("decoder", "mu", 0, 1.0, 1.2))
    runs += [kept("decoder", "dense-muon", 0, 1.8, 32.0)]
    runs = [run for run in runs if run.scheme != "dense-muon" or run.seed == 0]
    assert result(runs).facts["best"]["decoder_gap"].startswith(NASTY)


def test_it_can_be_written_and_read(tmp_path):
    write(result(), tmp_path / "r.json")
    assert read(tmp_path / "r.json") == result().model_copy(update={"date": read(tmp_path / "r.json").date})


def test_tables_are_by_task_from_many_bits_to_few():
    tables = row_tables(result())
    assert [table.title for table in tables] == ["decoder: byte decoder on text", "resnet: ResNet on Fashion-MNIST"]
    cells = {line[0]: line for line in tables[0].rows}
    assert [line[0] for line in tables[1].rows] == ["dense fp32", "large", f"{NASTY} (preset)"]
    assert "diverged, 2.1000, 2.2000" in cells["bad"]
    assert cells["large"][-2:] == ("yes", "all|int4")


def test_plots_and_page():
    found = result()
    plots = plots_of(found)
    assert [plot.name for plot in plots] == ["frontier-decoder", "frontier-resnet"]
    marks = [trace for trace in plots[0].data if trace["mode"] == "markers"]
    assert sum(len(trace["x"]) for trace in marks) == 5
    line = plots[0].data[-1]
    assert line["x"] == sorted(line["x"])
    assert line["y"] == sorted(line["y"], reverse=True)
    page = render_bench(found)
    assert NASTY not in page
    assert "resnet_kept_at_87".replace("_", " ") in page


def test_markdown_and_pictures_stand_beside_each_other(tmp_path):
    for name in ("a", "b"):
        write(result(), tmp_path / f"{name}.json")
    bench_page([tmp_path / "a.json", tmp_path / "b.json"], output=tmp_path / "frontier.md", title="Frontier")
    text = (tmp_path / "frontier.md").read_text()
    names = sorted(path.name for path in tmp_path.glob("*.svg"))
    assert names == sorted(pictures([result(), result()]))
    assert len(names) == 4
    for name in names:
        assert f"({name})" in text
        root = ElementTree.fromstring((tmp_path / name).read_text())
        assert root.tag.endswith("svg")
        assert not [node for node in root.iter() if "script" in node.tag]
    assert "### decoder: byte decoder on text" in text
    assert "name: some data" in text
    assert render_markdown("T", [result()]).count("| scheme |") == 2


def test_a_picture_holds_every_scheme_with_a_gap_inside_its_frame():
    root = ElementTree.fromstring(pictures([result()])["frontier-decoder.svg"])
    dots = [node for node in root.iter() if node.tag.endswith("circle")]
    titled = [node for node in dots if len(node)]
    assert len(titled) == 5
    assert all(0 < float(node.get("cx")) < 820 and 0 < float(node.get("cy")) < 440 for node in dots)


@pytest.mark.parametrize("bits", [0.1, 1.0, 4.0, 8.0, 16.0, 32.0])
@pytest.mark.parametrize("label", ["int4", "PowerSGD rank 16, int4 factors, and as long as the longest name is"])
def test_names_on_the_line_end_inside_the_frame(bits, label):
    """By 0.6 font sizes a letter. Beyond 80 % of the width a name stands left of its dot."""
    more = {"side": "update", "gap": 0.5, "unit": "%", "on_frontier": True}
    rows = [{"label": label, "bits": bits, **more}, {"label": "x", "bits": 0.05, **more}]
    root = ElementTree.fromstring(frontier_svg("T", rows))
    name = next(node for node in root.iter() if node.tag.endswith("text") and node.text == label)
    dot = next(node for node in root.iter() if node.tag.endswith("circle") and label in "".join(node.itertext()))
    at, wide, is_left = float(name.get("x")), 6 * len(label), name.get("text-anchor") == "end"
    start, end = (at - wide, at) if is_left else (at, at + wide)
    assert 0 <= start < end <= 820
    assert is_left or float(dot.get("cx")) <= 0.8 * 820
    assert (end < float(dot.get("cx"))) == is_left

"""Reading run folders that are whole, half there, resumed, or damaged; and the series behind the plots."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import report_runs as runs
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from trainingkit.core.records import Record
from trainingkit.report import read_run, series, steptable
from trainingkit.report.figures.loss import unit_scale
from trainingkit.report.figures.marks import marks_of

VALUES = hnp.arrays(np.float64, st.integers(1, 400), elements=st.floats(-1e6, 1e6) | st.just(math.nan))


def test_a_resume_replaces_the_steps_it_went_back_behind(tmp_path):
    rows: list[Record] = [runs.start(), *[runs.step(n, 9.0) for n in range(1, 11)], runs.evaluation(8, 9.0)]
    rows += [runs.start(attempt=2, start_step=6), *[runs.step(n, 1.0, attempt=2) for n in range(7, 9)]]
    data = read_run(runs.make_run(tmp_path, {0: rows}))
    kept = [(s.step, s.loss) for s in data.ranks[0].steps]
    assert kept == [(n, 9.0) for n in range(1, 7)] + [(7, 1.0), (8, 1.0)]
    assert data.repeated_steps == 4 and data.evals == () and data.attempts == 2


def test_pauses_between_attempts_do_not_count_as_training(tmp_path):
    rows: list[Record] = [runs.step(1), runs.step(2), runs.step(3, attempt=2, time_s=runs.T0 + 1e6)]
    table = steptable.build(read_run(runs.make_run(tmp_path, {0: rows})).ranks)
    assert table.elapsed_s.tolist() == pytest.approx([0.6, 1.2, 1.8])


def test_ranks_are_merged_with_their_tokens_as_weights(tmp_path):
    rows: dict[int, list[Record]] = {
        0: [runs.step(1, 1.0, tokens=300, step_s=1.0, phases={"forward": 1.0}, wire_bytes=10)],
        1: [runs.step(1, 5.0, tokens=100, step_s=2.0, phases={"forward": 2.0}, wire_bytes=30), runs.step(2, None)],
    }
    table = steptable.build(read_run(runs.make_run(tmp_path, rows)).ranks)
    assert table.loss[0] == pytest.approx(2.0) and math.isnan(table.loss[1])
    assert table.tokens_per_s[0] == pytest.approx(200.0)
    assert table.wire_bytes[0] == pytest.approx(20.0) and table.phases["forward"][0] == pytest.approx(1.5)


def test_half_lines_wrong_values_missing_ranks_and_a_missing_recipe_are_named(tmp_path):
    run = runs.make_run(tmp_path, {0: [runs.start(0, 3), runs.step(1)], 1: [runs.start(1, 3)]}, recipe=None)
    odd = {"kind": "step", **vars(runs.step(2)), "phases": None}
    with open(run.metrics(0), "a", encoding="utf-8") as handle:
        handle.write(json.dumps(odd) + "\n" + '{"kind": "step", "st')
    run.decisions.write_text('{"step": 1, "choice": "a"}\n17\n{"st', encoding="utf-8")
    data = read_run(run)
    text = "\n".join(data.warnings)
    assert "metrics/rank-0.jsonl: 2 lines could not be read and are left out." in text
    assert "No records of rank 2: the figures are of the other ranks only." in text
    assert "recipe.toml is missing" in text and "decisions.jsonl: 2 line(s)" in text
    assert [s.step for s in data.ranks[0].steps] == [1] and len(data.decisions) == 1


def test_training_loss_is_put_in_the_unit_of_validation(tmp_path):
    data = read_run(runs.make_run(tmp_path, {0: [runs.step(1), runs.evaluation(1, 2.0)]}))
    unit, scale = unit_scale(data)
    assert unit == "bits per byte" and scale == pytest.approx(1 / math.log(2))


def test_aborted_and_not_finite_steps_are_marked_once(tmp_path):
    rows: list[Record] = [
        runs.step(1, None, committed=False), runs.event(1, "abort", "not finite"),
        runs.step(2, None, committed=False), runs.step(3, None), runs.event(3, "snapshot"),
    ]  # fmt: skip
    data = read_run(runs.make_run(tmp_path, {0: rows}))
    found = sorted((m.step, m.kind) for m in marks_of(steptable.build(data.ranks), data.events))
    assert found == [(1, "abort"), (2, "abort"), (3, "loss not finite"), (3, "snapshot")]


@settings(deadline=None, max_examples=60)
@given(VALUES, st.integers(4, 60))
def test_downsampling_keeps_the_extremes_and_the_limit(values, most):
    rows = series.keep_extremes(values, most)
    assert len(rows) <= max(most, 0) or len(values) <= most
    assert (np.diff(rows) > 0).all()
    if np.isfinite(values).any():
        kept = values[rows]
        assert np.nanmin(kept) == np.nanmin(values) and np.nanmax(kept) == np.nanmax(values)


@settings(deadline=None, max_examples=60)
@given(VALUES, st.integers(1, 60))
def test_bins_cover_every_row_once_and_keep_the_mean(values, most):
    borders = series.edges(len(values), most)
    assert borders[0] == 0 and borders[-1] == len(values) and len(borders) - 1 <= most
    means = series.bin_mean(values, borders)
    for mean, begin, end in zip(means, borders[:-1], borders[1:], strict=True):
        finite = values[begin:end][np.isfinite(values[begin:end])]
        assert math.isnan(mean) if len(finite) == 0 else mean == pytest.approx(finite.mean(), rel=1e-9, abs=1e-6)


@settings(deadline=None, max_examples=60)
@given(VALUES, st.integers(1, 30))
def test_the_trend_stays_between_the_extremes_of_its_window(values, window):
    trend = series.smooth(values, window)
    for row, value in enumerate(trend):
        near = values[max(0, row - window // 2) : row + window // 2 + 1]
        near = near[np.isfinite(near)]
        assert math.isnan(value) if len(near) == 0 else near.min() - 1e-3 <= value <= near.max() + 1e-3

"""Scoring: what is missing is marginalised, the row's own label is never used, floors and regrets by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from planner_rows import GPT, write

from trainingkit.core.errors import DataError
from trainingkit.planner.score import score_file
from trainingkit.planner.score.calibrate import Sample, fit, leave_one_out
from trainingkit.planner.score.floors import repeat_floor
from trainingkit.planner.score.missing import ways_of
from trainingkit.planner.score.regret import mean_regret, sweeps
from trainingkit.planner.score.rows import Row, read_rows
from trainingkit.planner.score.shapes import model_of


def test_a_whole_row_has_one_reading_and_a_good_prediction(tmp_path: Path) -> None:
    score = score_file(write(tmp_path / "a.csv", GPT))
    ways = ways_of(Row(GPT))
    assert not isinstance(ways, str)
    assert len(ways) == 1
    assert score.checks["mape_stock"] < 0.15
    assert score.checks["mape_factor"] == pytest.approx(0.0)


def test_missing_cells_are_marginalised_with_weights_that_add_up() -> None:
    open_row = {**GPT, "recompute": "", "inter_node_gbps": "", "micro_batch": ""}
    ways = ways_of(Row(open_row))
    assert not isinstance(ways, str)
    assert len(ways) > 4
    assert math.fsum(way.weight for way in ways) == pytest.approx(1.0)
    assert {way.layout.recompute for way in ways} <= {"none", "full"}


@pytest.mark.parametrize("column", ["step_time_s", "tokens_per_s_per_gpu", "peak_mem_gib", "mfu_pct", "outcome"])
def test_the_label_is_never_read(column: str) -> None:
    open_row = {**GPT, "recompute": "", "virtual_pp": "", "micro_batch": ""}
    assert ways_of(Row(open_row)) == ways_of(Row({**open_row, column: "3"}))


def test_what_cannot_be_predicted_is_listed_with_its_reason(tmp_path: Path) -> None:
    bad = {**GPT, "id": "B1", "zero_or_fsdp": "zero3+cpu offload"}
    tpu = {**GPT, "id": "B2", "gpu": "TPUv4"}
    fast = {**GPT, "id": "B3", "tflops_6nd": "400"}
    score = score_file(write(tmp_path / "a.csv", GPT, bad, tpu, fast))
    reasons = {one.name: one.why for one in score.excluded}
    assert reasons["B1"] == "states in host memory are not modelled"
    assert "TPUv4" in reasons["B2"]
    assert "data sheet" in reasons["B3"]
    assert score.facts["excluded_share"] == pytest.approx(0.75)


def test_gated_and_experts_are_read_off_the_published_size() -> None:
    llama = Row({**GPT, "hidden": "4096", "layers": "32", "ffn_hidden": "14336", "heads": "32", "kv_heads": "8",
                 "vocab": "128256", "params_b": "8.03"})  # fmt: skip
    model = model_of(llama)
    assert getattr(model, "gated", None) is True
    mixtral = Row({**llama.cells, "vocab": "32000", "params_b": "46.7", "params_active_b": "12.9"})
    model = model_of(mixtral)
    assert (getattr(model, "experts", 0), getattr(model, "experts_per_token", 0)) == (8, 2)


def test_a_plan_that_ran_out_of_memory_is_not_called_a_fit(tmp_path: Path) -> None:
    small = {**GPT, "id": "C1", "tp": "1", "dp": "256", "outcome": "OOM", "step_time_s": ""}
    score = score_file(write(tmp_path / "a.csv", GPT, small))
    assert score.checks["oom_called_fit"] == 0.0
    assert score.checks["fit_refused"] == 0.0


def test_the_floor_is_the_spread_of_repeats() -> None:
    rows = [(Row(GPT), 10.0), (Row(GPT), 12.0), (Row({**GPT, "tp": "4"}), 5.0)]
    floor, widest, count = repeat_floor(rows)
    assert (floor, widest, count) == (pytest.approx((1 / 10 + 1 / 12) / 2), pytest.approx(1.2), 2)


def test_regret_by_hand() -> None:
    source = {**GPT, "source": "BigScience BLOOM sweep"}
    times = {"1": (10.0, 9.0), "2": (8.0, 9.5), "4": (12.0, 12.0), "8": (20.0, 30.0)}
    items = [(Row({**source, "micro_batch": m}), measured, guess) for m, (measured, guess) in times.items()]
    found = sweeps(items)
    assert mean_regret(found, "top1") == pytest.approx(10 / 8 - 1)
    assert mean_regret(found, "top3") == 0.0


def test_left_out_factors_never_see_their_source() -> None:
    traits = {"one": 1.0}
    samples = [Sample("a", 0.4, traits), Sample("b", 0.2, traits), Sample("c", 0.3, traits)]
    shifts = leave_one_out(samples)
    changed = leave_one_out([Sample("a", 9.0, traits), *samples[1:]])
    assert shifts[0] == changed[0]
    assert shifts[1] != changed[1]
    assert fit(samples, ridge=0.0)["one"] == pytest.approx(0.3)


def test_files_that_cannot_be_scored(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="No row can be predicted"):
        score_file(write(tmp_path / "a.csv", {**GPT, "gpu": "TPUv4"}))
    with pytest.raises(DataError, match="cannot be read"):
        read_rows(tmp_path / "none.csv")
    with pytest.raises(DataError, match="no step_time_s"):
        read_rows(write(tmp_path / "b.csv", {k: v for k, v in GPT.items() if k != "step_time_s"}))
    (tmp_path / "c.csv").write_text(",".join(GPT) + "\n")
    with pytest.raises(DataError, match="no rows"):
        read_rows(tmp_path / "c.csv")

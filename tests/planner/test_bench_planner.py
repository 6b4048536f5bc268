"""The planner's bench: checks by name, goals, rows by source, what was excluded."""

from __future__ import annotations

from pathlib import Path

from planner_rows import GPT, write

from trainingkit.bench.planner import GOALS, run


def test_all_checks_by_name_with_their_goals(tmp_path: Path) -> None:
    file = write(
        tmp_path / "runs.csv", GPT, {**GPT, "id": "A2", "peak_mem_gib": "40"}, {**GPT, "id": "A3", "gpu": "TPUv4"}
    )
    result = run(file, command="trainingkit bench planner")
    assert {check.name for check in result.checks} == {"mape_factor", *GOALS}
    bare = run(write(tmp_path / "bare.csv", GPT), command="trainingkit bench planner")
    assert {check.name for check in bare.checks} == {"mape_factor", *GOALS} - {"mem_mape"}
    assert result.rows[-1]["source"] == "mean of sources"
    assert result.facts["file"] == "runs.csv"
    assert any("TPUv4" in note for note in result.notes)
    search = next(check for check in result.checks if check.name == "search_s")
    assert search.goal == "<= 5.0000"
    assert 0 < search.value < 60

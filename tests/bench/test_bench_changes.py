"""The bench of changing links: what its figures become, and a small run in a lab."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainingkit.bench.changes.run import result_of, run
from trainingkit.bench.changes.spec import ChangesSpec, Found, Phase
from trainingkit.bench.result import read, write
from trainingkit.core.errors import ConfigError
from trainingkit.report.benchpage import render_bench

SPEC = ChangesSpec(rates=["100mbit", "10mbit"], steps=80)


def found(*, late: bool = False, behind: float = 1.01, same: bool = True) -> Found:
    calm = Phase("100mbit", 0, 80, "all|int4(block=64)", "all|int4(block=64)", 1.0)
    moves = [[83, "all|int3(block=64), normalised", "the link went from 100 to 10 Mbit/s"]]
    moves += [[step, "all|int4(block=64)", "again"] for step in (120, 130)] if late else []
    moved = Phase("10mbit", 80, 160, "all|int3(block=64), normalised", "all|int4(block=64)", behind, moves)
    return Found([calm, moved], same_decisions=same, same_bits=same)


def test_a_run_that_follows_holds() -> None:
    result = result_of(SPEC, found(), command="trainingkit bench changes")
    values = {check.name: check.value for check in result.checks}
    assert values["steps_to_rung@100mbit"] == 0.0 and values["steps_to_rung@10mbit"] == 3.0
    assert values["moves_per_50_after@10mbit"] == 0.0 and result.holds


@pytest.mark.parametrize(
    ("given", "fails"),
    [
        (found(late=True), {"steps_to_rung@10mbit", "moves_per_50_after@10mbit"}),
        (found(behind=1.2), {"behind_right@10mbit"}),
        (found(same=False), {"same_decisions", "replay_same_bits"}),
    ],
)
def test_each_check_fails_on_what_it_is_about(given: Found, fails: set[str]) -> None:
    result = result_of(SPEC, given, command="trainingkit bench changes")
    assert {check.name for check in result.checks if not check.holds} == fails


def test_figures_go_through_json_and_onto_a_page(tmp_path: Path) -> None:
    again = Found.from_json(found().to_json())
    assert again == found()
    result = result_of(SPEC, again, command="trainingkit bench changes")
    write(result, tmp_path / "changes.json")
    assert read(tmp_path / "changes.json") == result
    assert "the link went from 100 to 10 Mbit/s" in render_bench(result)


def test_a_rate_that_cannot_be_read_is_refused_before_anything_starts() -> None:
    with pytest.raises(ConfigError) as caught:
        run(ChangesSpec(rates=["fast"]), command="")
    assert caught.value.field == "--rates"


@pytest.mark.slow
def test_a_small_run_decides_alike_and_repeats_to_the_bit() -> None:
    """Whether it finds the right rung is not asked: steps of 20 ms are mostly noise."""
    result = run(ChangesSpec(rates=["100mbit", "10mbit", "100mbit"], steps=20, scale="tiny"), command="")
    held = {check.name: check.holds for check in result.checks}
    assert held["same_decisions"] and held["replay_same_bits"]
    assert [row["rate"] for row in result.rows] == ["100mbit", "10mbit", "100mbit"]

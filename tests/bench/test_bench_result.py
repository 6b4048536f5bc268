"""The shared JSON: a check holds by its bound, what is written can be read, and nothing else is accepted."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainingkit.bench import codec
from trainingkit.bench.codec_result import result_of
from trainingkit.bench.result import (
    Check,
    Result,
    describe_aa,
    judge,
    make_check,
    make_result,
    read,
    write,
)
from trainingkit.bench.stats import Interval
from trainingkit.core.errors import ConfigError
from trainingkit.core.section import check


def example(**more) -> Result:
    checks = [make_check("kept_share", Interval(0.97, 0.955, 0.99), ">= 0.95")]
    rows = [{"contender": "ours", "step_s": 1.25, "error": "", "curve": [[0.0, 5.5]]}]
    return make_result("network", command="trainingkit bench network", checks=checks, rows=rows, **more)


@given(st.floats(0.1, 2), st.floats(0, 0.5), st.floats(0.1, 2))
def test_a_check_holds_exactly_when_the_bound_on_the_wrong_side_does(value, half, goal):
    goal = round(goal, 3)
    low, high = value - half, value + half
    assert judge(f">= {goal}", low, high) is (low >= goal)
    assert judge(f"<= {goal}", low, high) is (high <= goal)


def test_without_bounds_nothing_holds():
    found = make_check("kept_share", Interval(0.99, math.nan, math.nan), ">= 0.95")
    assert (found.low, found.high, found.holds) == (None, None, False)


def test_a_check_that_claims_more_than_its_bounds_is_refused():
    values = {"name": "kept_share", "value": 0.97, "low": 0.94, "high": 1.0, "unit": "ratio", "goal": ">= 0.95"}
    with pytest.raises(ConfigError, match=r"holds = False by goal >= 0\.95 and bounds 0\.94, 1\.0"):
        check(Check, {**values, "holds": True}, field="checks")
    with pytest.raises(ConfigError, match="value that cannot be used"):
        check(Check, {**values, "holds": False, "goal": "better"}, field="checks")


def test_what_is_written_can_be_read(tmp_path):
    path = tmp_path / "results" / "network.json"
    result = example(aa=describe_aa(Interval(1.001, 0.99, 1.01), 14, "none"), facts={"rho": 3.5}, notes=["mind"])
    write(result, path)
    assert read(path) == result
    table = json.loads(path.read_text())
    assert set(table) >= {"checks", "rows", "machine", "versions", "aa", "command", "date"}
    assert set(table["checks"][0]) == {"name", "value", "low", "high", "unit", "goal", "holds", "bounds"}
    assert result.quiet
    assert result.holds
    assert table["aa"]["holds"] is True


def test_a_noisy_machine_holds_nothing():
    result = example(aa=describe_aa(Interval(1.0, 0.95, 1.04), 14, "none"))
    assert result.checks[0].holds
    assert not result.quiet
    assert not result.holds


def test_what_json_cannot_hold_is_refused_and_leaves_no_file(tmp_path):
    path = tmp_path / "x.json"
    for bad in (math.nan, math.inf):
        with pytest.raises(ConfigError, match="result cannot be written"):
            write(example().model_copy(update={"rows": [{"step_s": bad}]}), path)
    assert list(tmp_path.iterdir()) == []


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "x.json"
    with pytest.raises(ConfigError, match="not a bench's result") as caught:
        read(path)
    assert caught.value.next_step == "Make it again: trainingkit bench network --json FILE"
    path.write_text("{")
    with pytest.raises(ConfigError, match="not a bench's result"):
        read(path)
    path.write_text(json.dumps({"bench": "x", "surprise": 1}))
    with pytest.raises(ConfigError):
        read(path)


def test_the_codec_bench_gives_the_shared_result(tmp_path):
    measured = codec.run(size_bytes=64 << 10, rounds=6, kernel="torch")
    result = result_of(measured, command="trainingkit bench codec --size 64KiB")
    assert len(result.checks) == 3 * len(codec.codecs()) + 1
    assert {found.goal for found in result.checks} == set(codec.GOALS.values())
    assert result.quiet
    write(result, tmp_path / "codec.json")
    assert read(tmp_path / "codec.json").rows == measured["rows"]

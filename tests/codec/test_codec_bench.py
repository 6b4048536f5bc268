"""The codec bench says what it measured, in the form that the goals are read from."""

import json

import pytest

from trainingkit.bench import codec as bench


def test_bench_gives_checks_rows_machine_and_versions():
    result = bench.run(size_bytes=1 << 18, rounds=3)
    names = [(check["name"], check["codec"]) for check in result["checks"]]
    assert sorted(names) == sorted((name, spec) for name in bench.GOALS for spec in bench.CODECS)
    for check in result["checks"]:
        assert 0 < check["low"] <= check["value"] <= check["high"]
        assert check["holds"] == (check["low"] >= check["goal"])
    assert len(result["rows"]) == 1 + 2 * len(bench.CODECS)
    assert result["versions"]["torch"] and result["machine"]["size_bytes"] == 1 << 18
    assert json.loads(json.dumps(result)) == result


def test_bounds_hold_the_median_and_widen_with_the_spread():
    low, high = bench._bounds([1.0] * 9, seed=0)
    assert low == high == 1.0
    low, high = bench._bounds([0.5, 0.9, 1.0, 1.1, 1.5], seed=0)
    assert low < 1.0 < high


def test_bench_restores_the_thread_count():
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    bench.run(size_bytes=1 << 14, rounds=1)
    assert torch.get_num_threads() == before

"""The codec bench says what it measured, in the form that the goals are read from."""

import json

import pytest

from trainingkit.bench import codec as bench
from trainingkit.bench.result import judge
from trainingkit.codec.packings import PACKINGS
from trainingkit.codec.quantisers import QUANTISERS

SPECS = bench.codecs()


def test_bench_gives_checks_rows_machine_and_versions():
    result = bench.run(size_bytes=1 << 16, rounds=3, kernel="torch")
    names = [(check["name"], check["codec"]) for check in result["checks"]]
    each = [name for name in bench.GOALS if name != "bits_per_value"]
    assert sorted(names) == sorted([(name, spec) for name in each for spec in SPECS] + [("bits_per_value", SPECS[-1])])
    for check in result["checks"]:
        assert 0 < check["low"] <= check["value"] <= check["high"]
        assert check["holds"] == judge(check["goal"], check["low"], check["high"])
        assert check["holds"] or check["name"].endswith("_vs_copy")
    assert len(result["rows"]) == 1 + 2 * len(SPECS)
    assert result["versions"]["torch"] and result["machine"]["size_bytes"] == 1 << 16
    assert json.loads(json.dumps(result)) == result


def test_every_quantiser_and_packing_is_measured():
    text = " ".join(SPECS)
    for name in QUANTISERS.names():
        assert f"all|{name}" in text
    for name in PACKINGS.names():
        assert f"|int4(block=64)|{name}" in text and f"|int2(block=256)|{name}" in text
    assert len(set(SPECS)) == len(SPECS)


def test_bounds_hold_the_median_and_widen_with_the_spread():
    low, high = bench._bounds([1.0] * 9, seed=0)
    assert low == high == 1.0
    low, high = bench._bounds([0.5, 0.9, 1.0, 1.1, 1.5], seed=0)
    assert low < 1.0 < high


def test_bench_restores_the_thread_count():
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    bench.run(size_bytes=1 << 14, rounds=1, kernel="torch")
    assert torch.get_num_threads() == before

"""What is kept between commands: whose it is, and what becomes of a damaged file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from timetoloss_small import fill, measured

from trainingkit.bench.cache import keep
from trainingkit.bench.timetoloss import proving
from trainingkit.bench.timetoloss import times as times_module
from trainingkit.bench.timetoloss.catalogue import BASELINE, BF16
from trainingkit.bench.timetoloss.curve import CurveSpec, path_of
from trainingkit.bench.timetoloss.run import Asked, run
from trainingkit.bench.timetoloss.spec import TimeToLossSpec
from trainingkit.bench.timetoloss.times import path_of as times_path
from trainingkit.bench.timetoloss.times import read_group, time_missing
from trainingkit.core.errors import ConfigError


def test_the_kind_of_arithmetic_is_in_a_digest_only_where_it_is_another_than_at_first(monkeypatch):
    """Names of files that a cache holds since before the arithmetic was a setting."""
    monkeypatch.setattr(torch, "__version__", "2.13.0+cpu")
    first = CurveSpec(name="plain", rate=1.5e-3, steps=120)
    assert path_of(Path("cache"), first).name == "7bb5de6c5e241960a3a4.json"
    values = {"name": "every(8)|all|int2+muon", "rate": 0.08, "steps": 72, "eval_every": 5}
    assert path_of(Path("cache"), CurveSpec(**values)).name == "eb6f1da022714e825569.json"
    assert path_of(Path("cache"), CurveSpec(**values, compute="bf16")).name == "eb6f1da022714e825569.json"
    assert path_of(Path("cache"), CurveSpec(**values, compute="fp32")).name != "eb6f1da022714e825569.json"


def test_times_and_whole_runs_belong_to_a_processor_and_an_arithmetic(tmp_path):
    spec = TimeToLossSpec(compute="bf16", processor="a")
    others = [spec.model_copy(update=change) for change in ({"compute": "fp32"}, {"processor": "b"}, {"winner": BF16})]
    paths = {times_path(tmp_path, each, "25mbit", "judged") for each in (spec, *others)}
    assert len(paths) == 4
    curve = spec.curve(BASELINE, 1e-3, 160)
    assert proving.proof_path(tmp_path, spec, curve, 160) != proving.proof_path(tmp_path, others[1], curve, 160)
    assert spec.curve(BASELINE, 1e-3, 160).compute == "bf16"
    assert others[0].curve(BASELINE, 1e-3, 160).compute == "fp32"


def test_a_cache_that_cannot_be_written_is_noticed_before_anything_runs(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ConfigError, match=r"(?s)cannot be kept.*--cache"):
        run(TimeToLossSpec(), Asked(), tmp_path / "file" / "cache", command="")


def test_times_that_cannot_be_read_are_taken_again(tmp_path, monkeypatch):
    spec = TimeToLossSpec(links=["25mbit"])
    path = times_path(tmp_path, spec, "25mbit", "judged")
    taken = []

    def measure(asked, show):
        taken.append(asked.contenders)
        return measured({"none": 1.5, "plain": 3.0})

    monkeypatch.setattr(times_module, "measure", measure)
    for damage in ("{}", "not JSON", '{"seconds": []}', "[1]"):
        keep(path, damage)
        time_missing(spec, ["25mbit"], tmp_path, minutes=1.0, groups=["judged"], again=False, show=lambda glance: None)
        assert read_group(path) is not None, damage
    assert len(taken) == 4
    time_missing(spec, ["25mbit"], tmp_path, minutes=1.0, groups=["judged"], again=False, show=lambda glance: None)
    assert len(taken) == 4, "what can be read is not taken again"


def test_what_is_missing_is_listed_and_a_damaged_file_is_missing(tmp_path):
    spec = TimeToLossSpec(steps=160, links=["25mbit"], seeds=1)
    fill(tmp_path, spec, spec.links)
    damaged = path_of(tmp_path, spec.curve(BASELINE, 3e-3, 160))
    damaged.write_text(damaged.read_text()[:100])
    times_path(tmp_path, spec, "25mbit", "ours").unlink()
    times_path(tmp_path, spec, "25mbit", "today").write_text("{}")
    times_path(tmp_path, spec, "25mbit", "judged").write_text('{"seconds": [1, 2')
    result = run(spec, Asked(no_run=True), tmp_path, command="c")
    assert "Missing curve: plain, rate 0.003, 160 steps, seed 0." in result.notes
    assert "Missing times at 25mbit: judged, today, ours." in result.notes


@settings(deadline=None, max_examples=20)
@given(st.sampled_from(["name", "rate", "steps", "schedule", "seed", "hosts", "scale", "eval_every", "proof_steps"]))
def test_every_setting_of_a_curve_is_in_its_digest(field):
    one = CurveSpec(name="plain", rate=1e-3, steps=30)
    other = {"name": "bf16", "rate": 2e-3, "schedule": "wsd", "scale": "tiny"}.get(field, 7)
    assert one.model_copy(update={field: other}).digest() != one.digest()


def test_the_cache_says_where_it_cannot_write(tmp_path):
    (tmp_path / "curves").write_text("a file")
    with pytest.raises(ConfigError, match="cannot be kept") as caught:
        keep(path_of(tmp_path, CurveSpec(name="plain", rate=1.0, steps=1)), json.dumps({}))
    assert caught.value.field == "--cache"

"""Sweeps: which runs are done, what is kept, who is near the frontier; and what becomes of them in the result."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import multiprocessing
from functools import partial
from pathlib import Path

import pytest
import torch

from trainingkit.bench.frontier.catalogue import catalogue, scheme_of
from trainingkit.bench.frontier.coder import Exact
from trainingkit.bench.frontier.coders import SIGN, FewLevels
from trainingkit.bench.frontier.coders.fewlevels import largest
from trainingkit.bench.frontier.gaps import gap, mean_interval
from trainingkit.bench.frontier.kept import (
    NOT_SETTINGS,
    VERSION,
    Kept,
    default_cache,
    described,
    path_of,
    read_kept,
    task_of,
    write_kept,
)
from trainingkit.bench.frontier.pareto import Point, frontier, near
from trainingkit.bench.frontier.run import run
from trainingkit.bench.frontier.scheme import Scheme
from trainingkit.bench.frontier.sweep import Wanted, _in_processes, _Pace, chosen_pairs, sweep
from trainingkit.core.errors import ConfigError

PLAIN = Scheme("s", "s", "gradient", Exact)


class Rounded:
    """A coder with a setting and a nested part."""

    def __init__(self, bits: int) -> None:
        self.width = bits
        self.inner = Exact()
        self.owed: dict[str, object] = {}


def kept(task: str, scheme: str, seed: int, value: float | None, bits: float) -> Kept:
    return Kept(
        task=task,
        scheme=scheme,
        seed=seed,
        value=value,
        bits=bits,
        carried_bits=bits,
        parameters=1000,
        carried_parameters=900,
        diverged_at=None if value is not None else 7,
        losses=[2.0, 1.0],
        seconds=1.5,
        settings=task_of(task).model_dump(),
        facts={"name": "some data"},
    )


def keep(cache: Path, task: str, scheme: str, seed: int, value: float | None, bits: float) -> None:
    write_kept(Wanted(task, scheme, seed, 4, cache).path, kept(task, scheme, seed, value, bits))


def test_the_key_depends_on_every_setting_that_counts_and_on_no_other(tmp_path):
    def path(scheme: Scheme = PLAIN, **task) -> Path:
        steps = task.get("steps")
        return path_of(tmp_path, "decoder", task_of("decoder", steps), scheme, task.get("seed", 0), 4)

    changed = {
        "side": "update",
        "coder": partial(Rounded, 4),
        "optimizer": "muon",
        "every": 2,
        "decay": 0.5,
        "residual": "int8",
        "warmup": ((0.1, Exact),),
        "momentum_correction": 0.9,
        "revision": 1,
    }
    others = [path(dataclasses.replace(PLAIN, **{name: value})) for name, value in changed.items()]
    others += [path(dataclasses.replace(PLAIN, coder=partial(Rounded, 8))), path(steps=5), path(seed=1)]
    assert len({path(), *others}) == len(others) + 1
    same = dataclasses.replace(PLAIN, label="other", preset=True, in_package=True, spec="x", tasks=())
    assert path(same) == path()
    told = {field.name for field in dataclasses.fields(Scheme)}
    assert told == {*changed, "name", "label", "preset", "in_package", "spec", "tasks"}


def test_keys_of_real_schemes_are_the_same_each_time_and_differ_from_each_other(tmp_path):
    schemes = list(catalogue().values())
    paths = [[path_of(tmp_path, "decoder", task_of("decoder"), scheme, 0, 4) for scheme in schemes] for _ in range(2)]
    assert paths[0] == paths[1]
    unnamed = [dataclasses.replace(scheme, name="s") for scheme in schemes]
    digests = {path_of(tmp_path, "decoder", task_of("decoder"), scheme, 0, 4).stem for scheme in unnamed}
    assert len(digests) == len(schemes)


def test_a_scheme_without_a_revision_keeps_its_key_and_functions_are_told_by_name(tmp_path):
    assert described(FewLevels(SIGN))["levels"]["statistic"] == {"type": "function", "name": "mean_magnitude"}
    other = dataclasses.replace(SIGN, statistic=largest)
    assert described(FewLevels(other)) != described(FewLevels(SIGN))
    task = task_of("decoder", 7)
    counted = {name: value for name, value in described(PLAIN).items() if name not in {*NOT_SETTINGS, "revision"}}
    told = {"version": VERSION, "task": ["decoder", task.model_dump()], "scheme": counted, "seed": 0, "workers": 4}
    digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]
    assert path_of(tmp_path, "decoder", task, PLAIN, 0, 4).name == f"decoder-s-0-{digest}.json"


def test_a_kept_run_is_read_back_and_a_damaged_one_counts_as_none(tmp_path):
    path = tmp_path / "runs" / "a.json"
    assert read_kept(path) is None
    write_kept(path, kept("decoder", "dense", 0, None, 32.0))
    assert read_kept(path) == kept("decoder", "dense", 0, None, 32.0)
    old = json.loads(path.read_text())
    del old["torch"]
    path.write_text(json.dumps(old))
    assert read_kept(path) == kept("decoder", "dense", 0, None, 32.0)
    path.write_text(path.read_text()[:-20])
    assert read_kept(path) is None
    for other in ({"task": "decoder"}, None, 5, [1]):
        path.write_text(json.dumps(other))
        assert read_kept(path) is None


def test_a_cache_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "runs").touch()
    with pytest.raises(ConfigError, match="cannot be kept") as raised:
        keep(tmp_path, "decoder", "dense", 0, 2.0, 32.0)
    assert "--cache DIR" in raised.value.text()


def test_the_cache_is_the_users(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache() == tmp_path / "trainingkit" / "frontier"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_cache() == tmp_path / ".cache" / "trainingkit" / "frontier"


def test_the_frontier_is_whom_no_other_beats():
    points = [Point("a", 1, 9.0), Point("b", 2, 3.0), Point("c", 2, 4.0), Point("d", 3, 3.0), Point("e", 32, 0.0)]
    assert [point.scheme for point in frontier(points)] == ["a", "b", "e"]
    assert near(points, 0.0) == {"a", "b", "d", "e"}
    assert near(points, 0.5) == {"a", "b", "c", "d", "e"}
    assert frontier([]) == []


def test_gaps_are_better_when_smaller_for_both_metrics():
    assert gap("loss", 2.1, 2.0) == 5.0
    assert gap("accuracy", 85.0, 86.5) == 1.5
    assert gap("loss", None, 2.0) is gap("accuracy", 80.0, None) is None


def test_the_interval_is_students():
    """Three values 1, 2, 3: mean 2, s = 1, t(0.95, 2) = 2.920."""
    found = mean_interval([1.0, 2.0, 3.0])
    assert (found.value, found.low) == (2.0, pytest.approx(2 - 2.920 / 3**0.5))
    assert found.high - 2.0 == pytest.approx(2.0 - found.low)
    alone = mean_interval([1.0])
    assert alone.value == 1.0
    assert not alone.within(-9.0, 9.0)


def test_schemes_run_on_the_tasks_they_are_meant_for_or_where_they_are_asked():
    pairs = chosen_pairs(["decoder", "bert"], None)
    assert set(pairs) == {(t, s.name) for s in catalogue().values() for t in s.tasks if t != "resnet"}
    assert chosen_pairs(["bert"], ["int4"]) == [("bert", "int4")]


@pytest.mark.parametrize(
    ("tasks", "schemes", "text"),
    [
        (["decodr"], None, "Did you mean 'decoder'?"),
        (["decoder"], ["int44"], "Did you mean 'int4'?"),
        (["decoder"], ["no such"], "one of dense, dense-muon"),
    ],
)
def test_a_name_that_is_not_there_is_told(tasks, schemes, text):
    with pytest.raises(ConfigError) as raised:
        chosen_pairs(tasks, schemes)
    assert text in raised.value.text()


@pytest.mark.parametrize("field", ["seeds", "jobs", "steps"])
def test_no_runs_are_refused(field, tmp_path):
    numbers = {"seeds": 1, "jobs": 1, "steps": 1, field: 0}
    with pytest.raises(ConfigError, match="nothing to do") as raised:
        run(tasks=["decoder"], schemes=None, cache=tmp_path, only_near=False, command="c", **numbers)
    assert raised.value.field == f"--{field}"


def test_what_is_kept_is_not_done_again_and_only_those_near_the_frontier_go_on(tmp_path):
    """Runs that are missing would take minutes and fail the test's deadline; all that should be wanted are kept."""
    values = {"dense": (2.0, 32.0), "int4": (2.002, 4.5), "sign": (2.5, 1.5), "int8": (2.2, 8.5), "fp8": (None, 8.5)}
    for name, (value, bits) in values.items():
        keep(tmp_path, "decoder", name, 0, value, bits)
        if name in ("dense", "int4", "sign"):
            for seed in (1, 2):
                keep(tmp_path, "decoder", name, seed, value, bits)
    told = []
    pairs = [("decoder", name) for name in values if name != "dense"]
    found = sweep(pairs, seeds=3, jobs=1, workers=4, cache=tmp_path, only_near=True, show=told.append)
    assert sorted((k.scheme, k.seed) for k in found) == sorted(
        [(name, 0) for name in values] + [(name, seed) for name in ("dense", "int4", "sign") for seed in (1, 2)]
    )
    assert told == []


def test_each_optimizer_is_compared_with_its_own_dense_runs(tmp_path):
    muon = [name for name, scheme in catalogue().items() if scheme.optimizer == "muon" and name != "dense-muon"]
    if not muon:
        pytest.skip("no scheme uses Muon")
    keep(tmp_path, "decoder", "dense-muon", 0, 1.7, 32.0)
    keep(tmp_path, "decoder", muon[0], 0, 1.8, 2.0)
    found = sweep([("decoder", muon[0])], seeds=1, jobs=1, workers=4, cache=tmp_path)
    assert [k.scheme for k in found] == ["dense-muon", muon[0]]
    assert scheme_of(muon[0]).optimizer == "muon"


def test_real_runs_in_processes_are_kept_and_make_a_result(tmp_path):
    told = []
    more = {"seeds": 1, "steps": 2, "cache": tmp_path, "only_near": False, "command": "trainingkit bench frontier"}
    found = run(tasks=["decoder"], schemes=["int4"], jobs=1, show=told.append, **more)
    assert [row["scheme"] for row in found.rows] == ["dense", "int4"]
    assert [row["values"][0] > 4 for row in found.rows] == [True, True]
    assert found.facts["decoder"]["steps"] == 2
    assert [glance.done for glance in told] == [0.0, 0.5, 1.0]
    assert "decoder" in told[-1].text
    files = list((tmp_path / "runs").iterdir())
    assert len(files) == 2
    assert {read_kept(path).torch for path in files} == {torch.__version__}
    assert all(len(read_kept(path).facts["sha256"]) == 64 for path in files)
    again = run(tasks=["decoder"], schemes=["int4"], jobs=1, show=told.append, **more)
    assert again.rows == found.rows
    assert len(told) == 3


def test_a_sweep_that_fails_ends_its_own_processes_and_no_other(tmp_path):
    context = multiprocessing.get_context("fork")
    done = context.Event()
    other = context.Process(target=done.wait)
    other.start()
    try:
        with pytest.raises(ConfigError, match="no scheme called 'none'"):
            _in_processes([Wanted("decoder", "none", 0, 4, tmp_path)], 1, _Pace("part", 1, lambda glance: None))
        assert other.is_alive()
        assert multiprocessing.active_children() == [other]
    finally:
        done.set()
        other.join()
    assert other.exitcode == 0

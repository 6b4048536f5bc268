"""Curves on real ranks: the same on every rank and every time, apart or not; what a turn of a whole round holds."""

from __future__ import annotations

import json
import os

import pytest
import torch
from timetoloss_small import made

from trainingkit.bench.cache import keep
from trainingkit.bench.network.rank import Rank
from trainingkit.bench.network.spec import NetworkSpec
from trainingkit.bench.network.stage import Stage
from trainingkit.bench.network.worker import Worker
from trainingkit.bench.timetoloss.catalogue import BASELINE
from trainingkit.bench.timetoloss.curve import CurveSpec, path_of, read_curve
from trainingkit.bench.timetoloss.curve_worker import bits_of, train
from trainingkit.bench.timetoloss.curves import run_missing
from trainingkit.bench.timetoloss.proving import prove, same_bits
from trainingkit.bench.timetoloss.rates import sweep_of
from trainingkit.bench.timetoloss.spec import TimeToLossSpec
from trainingkit.cluster.meeting import Meeting
from trainingkit.sync.every.apart import EverySync

NAMES = ["plain+muon(ns_steps=2)", "every(2)|all|int4+muon", "every(3, tau=1)|all|int4+fp32"]
TINY = TimeToLossSpec(hosts=2, scale="tiny", steps=8, sweep_steps=4, seeds=1, links=["50mbit"])


def spec_of(name, **more):
    return CurveSpec(**{"name": name, "rate": 1e-2, "steps": 6, "hosts": 2, "scale": "tiny", "eval_every": 4} | more)


def curves_on_a_rank(context, folder):
    torch.set_num_threads(1)
    found = {}
    for name in NAMES:
        spec = spec_of(name)
        rank = Rank(spec.network(), Meeting(context.group, context.store, context.rank), "fp32")
        stage = Stage(folder)
        whole, again = train(rank, spec, stage, 6), train(rank, spec_of(name, proof_steps=4), stage, 6)
        short = train(rank, spec_of(name, proof_steps=4), stage, 4)
        other = train(rank, spec_of(name, rate=2e-2), stage, 1)
        found[name] = (whole, again, short, other)
    return found


def test_curves_are_the_same_on_all_ranks_and_each_time(pool, tmp_path):
    one, other = pool.run(curves_on_a_rank, 2, tmp_path, deadline_s=90)
    for name in NAMES:
        whole, again, short, faster = one[name]
        assert [step for step, _ in whole.losses] == [0.0, 4.0, 6.0], name
        assert whole.losses == other[name][0].losses == again.losses, name
        assert whole.end == again.end == other[name][0].end, name
        assert short.proof == again.proof == short.end, "the first steps of a run are those of a shorter one"
        assert faster.losses[-1][1] != whole.losses[-1][1], name
        assert whole.losses[-1][1] < whole.losses[0][1], name
        assert whole.sent_bytes > 0, name
        assert whole.proof == whole.end, "a run shorter than the proof is compared at its end"
    lines = [json.loads(line) for line in (tmp_path / "progress.jsonl").read_text().splitlines()]
    assert lines[5] == {"step": 6, "of": 6, "loss": one[NAMES[0]][0].losses[-1][1]}


def batches_on_a_rank(context):
    rank = Rank(spec_of("plain").network(), Meeting(context.group, context.store, context.rank), "fp32")
    found = {}
    for name in ("plain", "plain+batch(1)", "plain+batch(3)"):
        entrant = rank.enter(name)
        found[name] = [rank.batch(entrant, ahead)["input_ids"].tolist() for ahead in range(6)]
        entrant.contender.close()
    return found


def test_a_batch_in_the_name_is_so_many_samples_a_step_of_the_same_order(pool):
    ranks = pool.run(batches_on_a_rank, 2, deadline_s=60)
    for name, size in (("plain", 2), ("plain+batch(1)", 1), ("plain+batch(3)", 3)):
        assert all(len(batch) == size for rank in ranks for batch in rank[name])

    def read(name, steps):
        return [row for step in range(steps) for rank in ranks for row in rank[name][step]]

    assert read("plain", 3) == read("plain+batch(1)", 6) == read("plain+batch(3)", 2)


def turns_on_a_rank(context, folder):
    torch.set_num_threads(1)
    spec = NetworkSpec(hosts=2, scale="tiny", codec="all|int8", timeout_s=20.0, warm_steps=1, contenders=NAMES[1:])
    worker = Worker(Rank(spec, Meeting(context.group, context.store, context.rank), "fp32"), Stage(folder))
    worker._warm_up()
    found = {}
    for name in NAMES[1:]:
        entrant = worker.entrants[name]
        sync = entrant.contender.sync
        assert isinstance(sync, EverySync)
        begun = (entrant.steps, sync.stats()["rounds"])
        worker._timed_turn(name)
        with entrant.contender.agreed():
            agreed = bits_of(entrant.model)
        flying = any(fragment.flying for fragment in sync.fragments)
        found[name] = (begun, entrant.steps, sync.stats()["rounds"], flying, bits_of(entrant.model), agreed)
    for entrant in worker.entrants.values():
        entrant.contender.close()
    return found


def test_a_turn_of_who_trains_apart_is_one_whole_round_and_leaves_nothing_on_the_wire(pool, tmp_path):
    one, other = pool.run(turns_on_a_rank, 2, tmp_path, deadline_s=60)
    for name, began, period in ((NAMES[1], 2, 2), (NAMES[2], 4, 3)):
        (steps, rounds), taken, after, flying, own, agreed = one[name]
        assert steps == began, name
        assert taken - steps == period, name
        assert after - rounds == 1, name
        assert not flying
        assert agreed == other[name][5], "the agreed model is everybody's"
        assert (own == agreed) is (name == NAMES[1]), "with tau, a rank is a step ahead of what was agreed"


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="a lab of this test needs root")
def test_a_missing_curve_is_run_once_and_has_the_same_bits_on_a_shaped_link(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    spec = TINY.model_copy(update={"winner": BASELINE})
    wanted = spec.curve(BASELINE, 3e-3, 8)
    glances = []

    def find(one):
        return read_curve(tmp_path, one)

    def short_ones():
        return [one for one in sweep_of(spec, "adamw", find) if one.steps == spec.sweep_steps and find(one) is None]

    while todo := short_ones():
        keep(path_of(tmp_path, todo[0]), made(todo[0]).model_dump_json())

    assert run_missing(spec, [BASELINE], tmp_path, minutes=0.0, show=glances.append) == [wanted]
    assert not glances
    assert run_missing(spec, [BASELINE], tmp_path, minutes=None, show=glances.append) == []
    assert {glance.part for glance in glances} == {"curves"}
    curve = find(wanted)
    assert curve is not None
    assert [step for step, _ in curve.losses] == [0.0, 5.0, 8.0]
    glances.clear()
    assert run_missing(spec, [BASELINE], tmp_path, minutes=None, show=glances.append) == []
    assert not glances, "nothing is run twice"
    prove(spec, [BASELINE], tmp_path, find, whole=False, show=glances.append)
    assert same_bits(spec, [BASELINE], tmp_path, find) == {BASELINE: True}

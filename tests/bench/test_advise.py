"""What advise measures: bytes against rounds that are run, codec seconds, the link from all-reduces; and its proof."""

from __future__ import annotations

import math
import os

import pytest
import torch

from ranks.cli import run_cli
from trainingkit.bench.advise.coding import Bench, Loopback, sample
from trainingkit.bench.advise.facts import Facts
from trainingkit.bench.advise.linking import link_of, stated_link
from trainingkit.bench.advise.numbers import Numbers, facts_of
from trainingkit.bench.advise.proof import PROVED, Proof, ProofSpec, check_of, error_of, name_of, rows_of, summarise
from trainingkit.bench.advise.run import telling_line
from trainingkit.bench.paired import Turns
from trainingkit.bench.result import read
from trainingkit.cluster.probe_links import Collective
from trainingkit.core.errors import ClusterError
from trainingkit.sync.auto.advice import advise
from trainingkit.sync.auto.forecast import Link
from trainingkit.sync.auto.ladder import LADDER, PLAIN, Rung
from trainingkit.sync.buckets import Shape

SIZES = {"first": 70_000, "norm": 300, "second": 9_000}
SHAPE = Shape(tuple(SIZES), SIZES)


class Counting(Loopback):
    """Counts what a real lane would send."""

    def all_to_all(self, received: torch.Tensor, sent: torch.Tensor):
        self.sent_bytes += sent.numel() // self.world_size * (self.world_size - 1)
        return super().all_to_all(received, sent)

    def all_gather(self, received: torch.Tensor, sent: torch.Tensor):
        self.sent_bytes += sent.numel() * (self.world_size - 1)
        return super().all_gather(received, sent)


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("rung", LADDER[1:], ids=str)
def test_the_bytes_of_a_load_are_those_of_the_rounds(monkeypatch, rung: Rung, ranks: int):
    lanes: list[Counting] = []

    def lane(ranks: int) -> Counting:
        lanes.append(Counting(ranks))
        return lanes[-1]

    monkeypatch.setattr("trainingkit.bench.advise.coding.Loopback", lane)
    bench = Bench.of(LADDER, {"first", "second"}, ranks)
    gradient = torch.randn(sum(SIZES.values()), generator=torch.Generator().manual_seed(0))
    before = gradient.clone()
    (load,) = [each for each, of in zip(bench.loads([SHAPE]), LADDER, strict=True) if of == rung]
    assert bench.code_s(rung, [SHAPE], [gradient]) > 0
    rounds = 3
    assert sum(each.sent_bytes for each in lanes) == rounds * load.sent_bytes
    assert not torch.equal(gradient, before)


def test_plain_codes_nothing_and_sends_a_ring():
    bench = Bench.of(LADDER, {"first", "second"}, 4)
    assert bench.code_s(LADDER[0], [SHAPE], [torch.zeros(1)]) == 0.0
    assert bench.loads([SHAPE])[0].sent_bytes == 2 * 3 / 4 * 4 * sum(SIZES.values())


def test_a_sample_of_buckets_is_spread_and_large_enough():
    assert sample([10] * 20, wanted=1000) == list(range(20))
    picked = sample([10] * 20, wanted=40)
    assert picked == [2, 7, 12, 17]
    assert sample([100, 1, 1], wanted=1) == [1]


def test_the_link_follows_from_the_largest_all_reduce():
    collectives = [Collective(n, 0.002 + 1.5 * n / 1e6, 0.0) for n in (1 << 16, 1 << 20)]
    found = link_of(collectives, 0.002, 4)
    assert found.bytes_per_s == pytest.approx(1e6) and found.latency_s == 0.002
    stated = stated_link("100mbit", "20ms")
    assert stated is not None and stated.bytes_per_s == pytest.approx(12.5e6 * 0.9564, rel=1e-3)
    assert stated.latency_s == 0.02 and stated_link("unshaped", "0ms") is None


def test_numbers_alone_make_a_situation_that_survives_json():
    asked = Numbers(params=1_000_000_000, step_s=2.0, ranks=8, link=Link(1e8, 1e-3))
    facts = facts_of(asked)
    again = Facts.from_json(facts.to_json())
    assert again == facts
    plain = facts.situation.loads[0]
    assert plain.sent_bytes == pytest.approx(2 * 7 / 8 * 4e9, rel=1e-3)
    assert facts.situation.window.hide_s == pytest.approx(4 / 3)
    assert all(load.code_s == 0 for load in facts.situation.loads)
    for rung, load in zip(facts.situation.rungs, facts.situation.loads, strict=True):
        assert plain.sent_bytes / load.sent_bytes == pytest.approx(rung.ratio, rel=0.01), rung


def test_codecs_are_timed_where_that_is_asked_for():
    asked = Numbers(params=4_000_000, step_s=2.0, ranks=2, link=Link(1e8), code_here=True)
    situation = facts_of(asked).situation
    assert situation.window.shared == 1.0
    told = zip(situation.rungs, situation.loads, strict=True)
    assert all((load.code_s > 0) == (rung.codec != PLAIN) for rung, load in told)


def test_a_log_tells_why_its_process_died():
    assert telling_line("") == "it wrote nothing"
    assert telling_line("one\nThe port is taken.\n\n") == "The port is taken."
    crash = "Fatal Python error: Aborted\n\nThread 0x1 (most recent call first):\n  File x\nExtension modules: numpy\n"
    assert telling_line(crash) == "Fatal Python error: Aborted"
    assert telling_line(f"terminate called\n  what(): broken pipe\n{crash}").startswith("what(): broken pipe, Fatal ")


def test_an_error_has_the_bounds_of_the_measured_median():
    found = error_of(1.1, [1.0] * 5)
    assert (found.value, found.low, found.high) == pytest.approx((0.1, 0.1, 0.1))
    spread = error_of(1.0, [0.9, 0.95, 1.0, 1.1, 1.2])
    assert spread.value == 0.0 and spread.low == 0.0 and spread.high > 0.05
    assert math.isnan(error_of(1.0, [1.0] * 4).high)


def proof(factor: float = 1.0, turns: int = 5) -> Proof:
    """Measured steps that are `factor` times those predicted."""
    facts = facts_of(Numbers(params=1_000_000, step_s=0.5, ranks=4, link=Link(1e6)), PROVED)
    made = Turns()
    for number in range(turns):
        made.add("none", number, 0.5)
        for row in advise(facts.situation).rows:
            made.add(name_of(row.rung), number, factor * row.step_s)
    said = {name_of(row.rung): row.sent_bytes for row in advise(facts.situation).rows}
    return Proof.of("8mbit", facts, made, said)


def test_a_proof_holds_when_every_rung_is_near_and_not_when_turns_are_few():
    assert check_of(proof()).holds and check_of(proof()).value == pytest.approx(0.0, abs=1e-9)
    far = check_of(proof(1.25))
    assert far.name == "advise_error@8mbit" and far.value == pytest.approx(0.2) and not far.holds
    assert not check_of(proof(turns=4)).holds
    rows = rows_of(proof(1.25))
    assert [row["rung"] for row in rows] == ["no exchange", *map(name_of, PROVED)]
    assert rows[1]["error"] == pytest.approx(-0.2) and rows[1]["sent_mb"] == rows[1]["said_mb"]


def test_a_rung_that_failed_is_named():
    broken = proof()
    broken.failed["all|bf16"] = "rank 1: Connection reset"
    with pytest.raises(ClusterError, match="could not take its turns") as caught:
        summarise(ProofSpec(), [broken], command="x")
    assert caught.value.field == "all|bf16" and "Connection reset" in str(caught.value)


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="a lab of this test needs root")
def test_the_bench_predicts_and_measures_in_a_lab(tmp_path):
    argv = ["bench", "advise", "--hosts", "2", "--scale", "tiny", "--link", "20mbit", "--rounds", "2"]
    done = run_cli([*argv, "--json", "advise.json"], cwd=tmp_path, deadline_s=110)
    assert done.code == 1, done.stderr  # two rounds give no bounds
    result = read(tmp_path / "advise.json")
    rows = {row["rung"]: row for row in result.rows}
    assert set(rows) == {"no exchange", *map(name_of, PROVED)}
    for rung in PROVED:
        row = rows[name_of(rung)]
        assert row["said_mb"] == pytest.approx(row["sent_mb"], rel=0.05), rung
        assert row["measured_s"] > 0 and row["turns"] == 2
    assert 10 < result.facts["20mbit"]["link_mbit_s"] < 20.5
    assert 1.0 <= result.facts["20mbit"]["stretch"] < 2.0
    assert rows["plain DDP"]["predicted_s"] > rows["all|int8(block=64)"]["predicted_s"]
    assert result.checks[0].name == "advise_error@20mbit" and "advise_error@20mbit" in done.stdout
    assert "warm-up: " in done.stderr

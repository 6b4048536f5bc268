"""Time to loss without any training: names, which runs are wanted, when a loss is reached, what is composed of it."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from timetoloss_small import finding, loss_after, made, measured

from trainingkit.bench.contender import builder_of
from trainingkit.bench.contenders.apart import quiet_step
from trainingkit.bench.naming import read_name
from trainingkit.bench.result import read, write
from trainingkit.bench.timetoloss import apart30, compose, proving
from trainingkit.bench.timetoloss.catalogue import BASELINE, BF16, LIMIT, MUON, WINNER, everybody
from trainingkit.bench.timetoloss.curve import Curve, CurveSpec, keep, path_of, read_curve
from trainingkit.bench.timetoloss.plan import next_length, pending, rate_of, runs_of, sweep_of, target_of
from trainingkit.bench.timetoloss.reaching import reach, step_ratios, steps_to
from trainingkit.bench.timetoloss.run import Asked, run
from trainingkit.bench.timetoloss.spec import TimeToLossSpec, period_of
from trainingkit.bench.timetoloss.times import EVERY30, GROUPS, Times, groups_on, timing_spec
from trainingkit.bench.timetoloss.times import path_of as times_path
from trainingkit.cli.bench_timetoloss import bench_time_to_loss
from trainingkit.core.errors import ConfigError
from trainingkit.report.benchmarkdown import render_markdown
from trainingkit.report.benchpage import render_bench
from trainingkit.report.benchrows import row_tables
from trainingkit.sync.every import Every

SPEC = TimeToLossSpec(steps=160)


@pytest.mark.parametrize(
    ("name", "way", "optimizer", "compute"),
    [
        ("plain", "plain", {"kind": "adamw"}, None),
        ("all|int3+normalised+muon", "all|int3+normalised", {"kind": "muon"}, None),
        ("every(4)|all|int4+muon(ns_steps=3)+fp32", "every(4)|all|int4", {"kind": "muon", "ns_steps": 3}, "fp32"),
    ],
)
def test_a_name_says_way_optimizer_and_precision(name, way, optimizer, compute):
    named = read_name(name)
    assert (named.way, named.optimizer, named.compute) == (way, optimizer, compute)
    builder_of(named.way)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("plain+moun", "no optimizer called 'moun'"),
        ("plain+muon+adamw", "one optimizer"),
        ("every(4)|all|int5", "int5"),
        ("evry(4)|all|int4", "Did you mean 'every'"),
        ("sparselocco", "no contender called 'sparselocco'"),
    ],
)
def test_a_name_that_cannot_be_read_is_refused(name, text):
    with pytest.raises(ConfigError, match=text.replace("(", r"\(")):
        builder_of(read_name(name).way)


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 12), st.integers(0, 11), st.integers(1, 3))
def test_nothing_flies_where_a_turn_begins(steps, tau, fragments):
    if tau > steps or fragments > steps:
        return
    every = Every(steps=steps, tau=tau, fragments=fragments)
    flies = {
        taken
        for taken in range(steps, 2 * steps)
        for fragment in range(fragments)
        for began in range(taken + 1)
        if began % steps == every.offset(fragment) and began <= taken < began + tau
    }
    if len(flies) == steps:
        with pytest.raises(ConfigError, match="always has a round on its way"):
            quiet_step(every)
    else:
        assert steps + quiet_step(every) not in flies


def test_a_round_delayed_to_the_next_one_cannot_take_turns():
    with pytest.raises(ConfigError, match="tau=3"):
        quiet_step(Every(steps=4, delay=1))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(0.5, 6.0), min_size=1, max_size=8), st.floats(0.4, 6.0))
def test_the_first_crossing_lies_where_the_line_does(losses, target):
    curve = [[5.0 * number, loss] for number, loss in enumerate(losses)]
    found = steps_to(curve, target)
    if found is None:
        assert min(losses) > target
        return
    assert all(loss > target for step, loss in curve if step < found)
    after = next(number for number, (step, _) in enumerate(curve) if step >= found)
    if after:
        (left, high), (right, low) = curve[after - 1], curve[after]
        assert high + (low - high) * (found - left) / (right - left) == pytest.approx(target)


@settings(deadline=None, max_examples=80)
@given(st.sets(st.integers(2, 60), min_size=1, max_size=8), st.integers(1, 70))
def test_the_search_ends_at_the_least_length_that_reaches(lengths, needed):
    lengths = sorted(lengths)
    tried: list[Curve] = []
    for _ in range(len(lengths) + 1):
        steps = next_length(lengths, tried, 2.0)
        if steps is None:
            break
        curve = made(CurveSpec(name="plain", rate=1.0, steps=steps))
        tried.append(curve.model_copy(update={"losses": [[float(steps), 1.9 if steps >= needed else 2.1]]}))
    taken = [curve.spec.steps for curve in tried]
    assert len(set(taken)) == len(taken), "no length is run twice"
    reaching = [steps for steps in lengths if steps >= needed]
    assert set(reaching[:1] or lengths[-1:]) <= set(taken)
    assert next_length(lengths, tried, 2.0) is None


def run_all(spec, names):
    kept: dict[str, Curve] = {}
    find = finding(kept)
    for _ in range(200):
        wanted = [one for name, seed in runs_of(spec, names) if (one := pending(spec, name, seed, find)) is not None]
        if not wanted:
            return find, kept
        kept[wanted[0].digest()] = made(wanted[0])
    raise AssertionError("the plan has no end")


def test_the_plan_ends_with_the_best_rates_a_target_a_seed_and_the_shortest_runs():
    names = [BASELINE, WINNER, BF16, BASELINE + MUON]
    find, kept = run_all(SPEC, names)
    assert (rate_of(SPEC, "adamw", find), rate_of(SPEC, "muon", find)) == (3e-3, 2e-2)
    for seed in range(3):
        target = loss_after(SPEC.curve(BASELINE, 3e-3, 160, seed), 160)
        assert target_of(SPEC, seed, find) == target
        winner = reach(SPEC, WINNER, seed, find)
        assert winner is not None
        assert winner.reached
        assert 60 < winner.steps <= 64, "AdamW's 160 steps are four halvings, which take Muon 64"
    assert {curve.spec.seed for curve in kept.values() if curve.spec.name == BF16} == {0}
    assert step_ratios(SPEC, WINNER, BASELINE, find) == pytest.approx([2.5] * 3, rel=0.02)
    limit = reach(SPEC, LIMIT + MUON, 0, find)
    assert limit is not None
    assert limit.curve.spec.name == BASELINE + MUON


def test_the_sweep_goes_on_while_an_end_is_the_best_and_stops():
    kept: dict[str, Curve] = {}
    for _ in range(20):
        missing = [each for each in sweep_of(SPEC, "adamw", finding(kept)) if each.digest() not in kept]
        if not missing:
            break
        curve = made(missing[0])
        rising = [[step, loss_after(curve.spec, round(step)) + 200 * curve.spec.rate] for step, _ in curve.losses]
        kept[curve.spec.digest()] = curve.model_copy(update={"losses": rising})
    rates = sorted(curve.spec.rate for curve in kept.values())
    assert rates == pytest.approx([1.5e-3 / 4, 1.5e-3 / 2, 1.5e-3, 3e-3, 6e-3])
    assert rate_of(SPEC, "adamw", finding(kept)) == pytest.approx(7.5e-4)


def test_lengths_are_whole_rounds():
    for name in ("every(8)|all|int2+muon", WINNER, "plain+muon", "every(6)|all|int4+muon"):
        assert all(steps % period_of(name) == 0 == steps % 4 for steps in SPEC.lengths(name))
    assert SPEC.lengths("all|int4") == [160]


def test_who_never_gets_there_has_no_speedup_but_a_row_that_says_so():
    find, kept = run_all(SPEC, [BASELINE, "all|int4"])
    curve = kept[SPEC.curve("all|int4", 3e-3, 160).digest()]
    worse = [[step, loss + 0.2] for step, loss in curve.losses]
    kept[curve.spec.digest()] = curve.model_copy(update={"losses": worse})
    times = Times("100mbit", {"today": measured({"plain": 6.0, "squeezed": 2.0, "none": 1.5, "none again": 1.5})})
    row = next(r for r in compose.rows_of(SPEC, {"100mbit": times}, find) if r["name"] == "all|int4")
    assert (row["reached"], row["steps_to_loss"], row["speedup"]) == (False, 160.0, None)
    assert row["minutes"] == pytest.approx(160 * 2.0 * 1.2 / 60)


def test_a_speedup_is_steps_times_seconds_with_the_worst_and_the_best_seed():
    find, _ = run_all(SPEC, [BASELINE, WINNER, BF16])
    turns = {"plain": 24.0, BF16: 13.0, WINNER: 3.0, "none": 1.5, "none again": 1.5}
    times = {"25mbit": Times("25mbit", {"ours": measured(turns)})}
    ratios = step_ratios(SPEC, WINNER, BASELINE, find)
    found = {check.name: check for check in compose.checks_of(SPEC, times, find)}
    assert found["speedup@25mbit"].value == pytest.approx(8 * sorted(ratios)[1])
    assert found["speedup@25mbit"].low == pytest.approx(8 * min(ratios))
    assert found["speedup@25mbit"].goal == ">= 30"
    assert found["speedup_vs_bf16@25mbit"].goal == ">= 15"
    assert found["speedup_vs_bf16@25mbit"].value == pytest.approx(13 / 3 * sorted(ratios)[1], rel=0.01)
    assert times["25mbit"].rho() == pytest.approx(15.0)


def fill(cache, spec, links):
    names = [entry.name for entry in everybody()]
    _, kept = run_all(spec, names)
    for curve in kept.values():
        keep(path_of(cache, curve.spec), curve.model_dump_json())
    for link, group in itertools.product(links, GROUPS):
        turns = dict.fromkeys(GROUPS[group], 3.0) | {"squeezed": 2.0, "none": 1.5, "none again": 1.5}
        turns |= {"plain": 24.0} if "plain" in turns else {}
        asked = timing_spec(spec, link, group, minutes=9.0)
        if group in groups_on(link, tuple(GROUPS)):
            keep(times_path(cache, asked, group), measured(turns).to_json())
    for each in apart30.gap_specs(spec).values():
        keep(path_of(cache, each), made(each).model_dump_json())
    for name in (BASELINE, spec.winner):
        seen = reach(spec, name, 0, lambda one: read_curve(cache, one))
        assert seen is not None
        for steps in (seen.curve.spec.proof_steps, seen.curve.spec.steps):
            path = proving.proof_path(cache, proving.CONFIRMED_LINK, seen.curve.spec, steps)
            keep(path, seen.curve.model_copy(update={"seconds": 600.0}).model_dump_json())


def test_all_that_is_kept_becomes_one_result_with_tables_and_a_page(tmp_path):
    spec = TimeToLossSpec(steps=160, links=["25mbit", "10mbit"])
    fill(tmp_path, spec, spec.links)
    result = run(spec, Asked(no_run=True), tmp_path, command="trainingkit bench time-to-loss")
    names = [check.name for check in result.checks]
    assert {"speedup@25mbit", "speedup_vs_bf16@25mbit", "speedup@10mbit", "same_bits"} <= set(names)
    assert {"every30_bytes_share", "stall_share@10mbit"} <= set(names)
    assert next(check for check in result.checks if check.name == "same_bits").holds
    assert not [note for note in result.notes if "Missing" in note]
    assert any("took 10.0 minutes by the clock." in note for note in result.notes)
    write(result, tmp_path / "r.json")
    tables = row_tables(read(tmp_path / "r.json"))
    assert [table.title.split(",")[0] for table in tables] == [
        "Minutes to the loss at 25mbit",
        "The winner with one thing put back",
        "Minutes to the loss at 10mbit",
        "Loss by rounds",
    ]
    assert any("(judged)" in row[0] for row in tables[0].rows)
    assert tables[1].rows[0][-1] == "1.00"
    markdown = render_markdown("Time to loss", [result])
    assert "### Minutes to the loss at 10mbit, rho 15.0\n\n| contender |" in markdown
    page = render_bench(result)
    assert "Loss against minutes at 10mbit" in page
    assert "Muon" in page


def test_what_is_missing_is_listed_and_a_damaged_file_is_missing(tmp_path):
    spec = TimeToLossSpec(steps=160, links=["25mbit"], seeds=1)
    fill(tmp_path, spec, spec.links)
    damaged = path_of(tmp_path, spec.curve(BASELINE, 3e-3, 160))
    damaged.write_text(damaged.read_text()[:100])
    times_path(tmp_path, timing_spec(spec, "25mbit", "ours", minutes=1.0), "ours").unlink()
    result = run(spec, Asked(no_run=True), tmp_path, command="c")
    assert "Missing curve: plain, rate 0.003, 160 steps, seed 0." in result.notes
    assert "Missing times at 25mbit: ours." in result.notes


def test_bits_that_differ_do_not_pass(tmp_path):
    spec = TimeToLossSpec(steps=160, links=["100mbit"], seeds=1)
    fill(tmp_path, spec, spec.links)
    seen = reach(spec, WINNER, 0, lambda one: read_curve(tmp_path, one))
    assert seen is not None
    path = proving.proof_path(tmp_path, "100mbit", seen.curve.spec, seen.curve.spec.proof_steps)
    keep(path, seen.curve.model_copy(update={"proof": "other"}).model_dump_json())
    assert proving.same_bits(spec, [BASELINE, WINNER], tmp_path, lambda one: read_curve(tmp_path, one)) == {
        BASELINE: True,
        WINNER: False,
    }
    result = run(spec, Asked(no_run=True), tmp_path, command="c")
    assert not next(check for check in result.checks if check.name == "same_bits").holds


@settings(deadline=None, max_examples=20)
@given(st.sampled_from(["name", "rate", "steps", "schedule", "seed", "hosts", "scale", "eval_every", "proof_steps"]))
def test_every_setting_of_a_curve_is_in_its_digest(field):
    one = CurveSpec(name="plain", rate=1e-3, steps=30)
    other = {"name": "bf16", "rate": 2e-3, "schedule": "wsd", "scale": "tiny"}.get(field, 7)
    assert one.model_copy(update={field: other}).digest() != one.digest()


def test_every_contender_of_the_catalogue_can_be_built_and_is_timed_by_a_group():
    timed = {name for names in GROUPS.values() for name in names} | {"squeezed", "none"}
    for entry in everybody():
        builder_of(read_name(entry.name).way)
    wanted = {entry.timing for entries in compose.KINDS.values() for entry in entries}
    assert wanted - timed <= {"all|int4"}


def test_bytes_of_every_30_are_compared_with_plain_ddp():
    group = measured({EVERY30: 1.6, "none": 1.5, "none again": 1.5})
    today = measured({"plain": 52.0, "none": 1.5})
    group.wire_bytes[EVERY30], today.wire_bytes["plain"] = [10e3] * 5, [65e6] * 5
    checks = {c.name: c for c in apart30.checks_of({"10mbit": Times("10mbit", {"today": today, "apart": group})})}
    assert checks["every30_bytes_share"].value == pytest.approx(10e3 / 65e6)
    assert checks["every30_bytes_share"].holds
    assert checks["stall_share@10mbit"].value == pytest.approx(1 - 1.5 / 1.6)
    assert not checks["stall_share@10mbit"].holds


@pytest.mark.parametrize(
    ("options", "text", "field"),
    [
        ({"part": "curvs"}, "no 'curvs' here", "--part"),
        ({"groups": "our"}, "no 'our' here", "--groups"),
        ({"only": "plain+sgd"}, "no optimizer called 'sgd'", "--only"),
        ({"links": "fast"}, "not a link rate", "--links"),
        ({"hosts": 1}, "cannot be used", "hosts"),
        ({"steps": 2}, "cannot be used", "steps"),
    ],
)
def test_bad_options_are_refused_before_anything_runs(options, text, field, tmp_path):
    with pytest.raises(ConfigError, match=text) as caught:
        bench_time_to_loss(**options, cache=tmp_path)
    assert caught.value.field == field
    assert not list(tmp_path.iterdir())


def test_the_cache_says_where_it_cannot_write(tmp_path):
    (tmp_path / "curves").write_text("a file")
    with pytest.raises(ConfigError, match="cannot be kept") as caught:
        keep(path_of(tmp_path, CurveSpec(name="plain", rate=1.0, steps=1)), json.dumps({}))
    assert caught.value.field == "--cache"

"""Time to loss without any training: names, which runs are wanted, when a loss is reached, what is composed of it."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from timetoloss_small import fill, finding, loss_after, made, measured, run_all, shifted

from trainingkit.bench.contender import builder_of
from trainingkit.bench.contenders.apart import quiet_step
from trainingkit.bench.naming import read_name
from trainingkit.bench.result import read, write
from trainingkit.bench.timetoloss import apart30, compose
from trainingkit.bench.timetoloss.catalogue import BASELINE, BF16, LIMIT, MUON, WINNER, everybody
from trainingkit.bench.timetoloss.curve import Curve
from trainingkit.bench.timetoloss.plan import next_length, target_of
from trainingkit.bench.timetoloss.rates import describe_sweep, rate_of, sweep_of
from trainingkit.bench.timetoloss.reaching import reach, step_ratios, steps_to
from trainingkit.bench.timetoloss.run import Asked, run
from trainingkit.bench.timetoloss.spec import TimeToLossSpec, period_of
from trainingkit.bench.timetoloss.times import EVERY30, GROUPS, Times, members_of
from trainingkit.cli.bench_timetoloss import bench_time_to_loss
from trainingkit.cli.bench_timetoloss_asked import Job, Kept, Now
from trainingkit.core.errors import ConfigError
from trainingkit.report.benchmarkdown import render_markdown
from trainingkit.report.benchpage import render_bench
from trainingkit.report.benchrows import row_tables
from trainingkit.sync.every import Every

SPEC = TimeToLossSpec(steps=160)


@pytest.mark.parametrize(
    ("name", "way", "optimizer", "compute", "batch"),
    [
        ("plain", "plain", {"kind": "adamw"}, None, None),
        ("all|int3+normalised+muon", "all|int3+normalised", {"kind": "muon"}, None, None),
        ("every(4)|all|int4+muon(ns_steps=3)+fp32", "every(4)|all|int4", {"kind": "muon", "ns_steps": 3}, "fp32", None),
        ("all|int4+batch(3)", "all|int4", {"kind": "adamw"}, None, 3),
        ("plain+batch(samples=2)+fp32", "plain", {"kind": "adamw"}, "fp32", 2),
    ],
)
def test_a_name_says_way_optimizer_precision_and_batch(name, way, optimizer, compute, batch):
    named = read_name(name)
    assert (named.way, named.optimizer, named.compute, named.batch) == (way, optimizer, compute, batch)
    builder_of(named.way)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("plain+moun", "no optimizer called 'moun'"),
        ("plain+muon+adamw", "one optimizer"),
        ("plain+batch(0)", "cannot be used"),
        ("plain+batch", "batch.samples"),
        ("plain+batch(1, 2)", "has no place"),
        ("plain+batched(1)", "no optimizer called 'batched'"),
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
    tried: dict[int, bool] = {}
    while (steps := next_length(lengths, tried)) is not None:
        assert steps not in tried, "no length is run twice"
        tried[steps] = steps >= needed
    reaching = [steps for steps in lengths if steps >= needed]
    assert set(reaching[:1] or lengths[-1:]) <= set(tried)


def test_the_plan_ends_with_the_best_rates_a_target_a_seed_and_the_shortest_runs():
    names = [BASELINE, WINNER, BF16, BASELINE + MUON]
    find, kept = run_all(SPEC, names)
    assert (rate_of(SPEC, "adamw", find), rate_of(SPEC, "muon", find)) == (3e-3, 2e-2)
    ends = [loss_after(SPEC.curve(BASELINE, 3e-3, 160, seed), 160) for seed in range(3)]
    assert target_of(SPEC, find) == pytest.approx(ends[1]), "the mean over the seeds, which differ by 0.001 each"
    for seed in range(3):
        winner = reach(SPEC, WINNER, seed, find)
        assert winner is not None
        assert winner.reached
        assert winner.steps == (64, 72, 72)[seed], "AdamW's four halvings take Muon 64 steps; then the round's end"
        assert winner.curve.spec.steps == 80, "after 64 steps the last seed is not there, so none of them counts"
    assert {curve.spec.seed for curve in kept.values() if curve.spec.name == BF16} == {0}
    assert step_ratios(SPEC, WINNER, BASELINE, find) == [160 / 64, 160 / 72, 160 / 72]
    limit = reach(SPEC, LIMIT + MUON, 0, find)
    assert limit is not None
    assert limit.curve.spec.name == BASELINE + MUON


def swept(optimizer, best_of):
    """A sweep's curves, each the worse the further its rate is from `best_of(steps)`."""
    kept: dict[str, Curve] = {}
    while missing := [each for each in sweep_of(SPEC, optimizer, finding(kept)) if each.digest() not in kept]:
        away = abs(math.log2(missing[0].rate / best_of(missing[0].steps)))
        kept[missing[0].digest()] = shifted(made(missing[0]).model_copy(update={"losses": [[1.0, 2.0]]}), away)
    return kept


def test_the_sweep_goes_on_until_half_and_double_of_the_best_were_worse():
    kept = swept("muon", lambda steps: 0.045)
    assert sorted(curve.spec.rate for curve in kept.values()) == pytest.approx([0.02, 0.04, 0.08, 0.16])
    assert rate_of(SPEC, "muon", finding(kept)) == pytest.approx(0.04)
    assert {curve.spec.steps for curve in kept.values()} == {SPEC.sweep_steps}


def test_the_best_rates_of_the_short_runs_run_at_the_baselines_length_and_those_decide():
    kept = swept("adamw", lambda steps: 1.4e-3 if steps == SPEC.sweep_steps else 5e-3)
    by_length = {
        steps: sorted(curve.spec.rate for curve in kept.values() if curve.spec.steps == steps) for steps in (40, 160)
    }
    assert by_length[40] == pytest.approx([7.5e-4, 1.5e-3, 3e-3])
    assert by_length[160] == pytest.approx([7.5e-4, 1.5e-3, 3e-3, 6e-3, 1.2e-2]), "the two best, and up to the best"
    assert rate_of(SPEC, "adamw", finding(kept)) == pytest.approx(6e-3)
    found = describe_sweep(SPEC, "adamw", finding(kept))
    assert (found["rate"], found["steps"], found["half_and_double_worse"]) == (6e-3, 160, True)
    assert list(found["loss_by_rate"]) == ["0.00075", "0.0015", "0.003", "0.006", "0.012"]
    one = next(key for key, curve in kept.items() if curve.spec.steps == 160)
    del kept[one]
    assert rate_of(SPEC, "adamw", finding(kept)) is None, "while one is missing, none is chosen"


def test_a_rate_at_the_end_of_what_is_tried_is_said_to_be_one():
    kept = swept("adamw", lambda steps: 1e3)
    found = describe_sweep(SPEC, "adamw", finding(kept))
    assert len(found["loss_by_rate"]) == 6
    assert not found["half_and_double_worse"]


def test_lengths_are_whole_rounds():
    for name in ("every(8)|all|int2+muon", WINNER, "plain+muon", "every(6)|all|int4+muon"):
        assert all(steps % period_of(name) == 0 == steps % 4 for steps in SPEC.lengths(name))
    assert SPEC.lengths("all|int4") == [160]


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
    assert tables[1].rows[0][-2:] == ("1.00", "-")
    assert tables[1].columns[-2:] == ("times the winner's", "bounds")
    assert all(row[-1] != "-" for row in tables[1].rows[1:] if not row[-2].startswith(">"))
    assert all("90 %" not in column for table in tables for column in table.columns)
    markdown = render_markdown("Time to loss", [result])
    assert "### Minutes to the loss at 10mbit, rho 15.0\n\n| contender |" in markdown
    assert "Bounds of speedup@25mbit" in markdown
    page = render_bench(result)
    assert "Loss against minutes at 10mbit" in page
    assert "Muon" in page


def test_every_contender_of_the_catalogue_can_be_built_and_is_timed_by_a_group():
    for winner in (WINNER, "every(8)|all|int2+muon", "every(2)|all|int8+muon(ns_steps=4)"):
        timed = {name for group in GROUPS for name in members_of(group, winner)} | {"squeezed", "none"}
        for entry in everybody(winner):
            builder_of(read_name(entry.name).way)
        wanted = {entry.timing for entries in compose.kinds_of(winner).values() for entry in entries}
        assert wanted - timed <= {"all|int4"}
        for group in ("judged", "ablation"):
            assert winner in members_of(group, winner), "ratios to it are taken within a round"
        assert len(compose.kinds_of(winner)["ablation"]) == 4
    assert compose.kinds_of("sparseloco")["ablation"] == ()


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
        ({"winner": "plain+sgd"}, "no optimizer called 'sgd'", "--winner"),
        ({"hosts": 1}, "cannot be used", "hosts"),
        ({"steps": 2}, "cannot be used", "steps"),
    ],
)
def test_bad_options_are_refused_before_anything_runs(options, text, field, tmp_path):
    with pytest.raises(ConfigError, match=text) as caught:
        job = {key: value for key, value in options.items() if key in {f.name for f in dataclasses.fields(Job)}}
        now = {key: value for key, value in options.items() if key not in job}
        bench_time_to_loss(job=Job(**job), now=Now(**now), kept=Kept(cache=tmp_path))
    assert caught.value.field == field
    assert not list(tmp_path.iterdir())


def test_the_rate_of_talking_every_30_steps_is_the_small_sweeps():
    kept: dict[str, Curve] = {}
    spec = TimeToLossSpec(hosts=2)
    while todo := apart30.pending_gaps(spec, finding(kept)):
        curve = made(todo[0])
        kept[curve.spec.digest()] = shifted(curve, 0.1 * abs(math.log2(curve.spec.rate / 1.2e-2)))
    assert {curve.spec.scale for curve in kept.values()} == {"tiny"}
    pair = [curve.spec for curve in kept.values() if curve.spec.steps == apart30.STEPS]
    (apart,) = [one for one in pair if one.name == EVERY30]
    dense = [kept[one.digest()] for one in pair if one.name == BASELINE]
    assert apart.rate == min(dense, key=lambda curve: curve.last_loss).spec.rate
    rows = apart30.gap_rows(spec, finding(kept))
    assert [row["rounds"] for row in rows] == [10 * number for number in range(11)]

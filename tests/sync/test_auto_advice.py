"""Advice: the controller's own choice, the bounds that any forecast must keep, and what is said where."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainingkit.sync.auto.advice import AUTO, HIDDEN_SHARE, Situation, advise
from trainingkit.sync.auto.forecast import Link, Load, Window, forecast, pick
from trainingkit.sync.auto.ladder import LADDER, PLAIN, within_limits
from trainingkit.sync.auto.trials import SLACK

PARAMETERS = 10_000_000
BUCKETS = 20


def loads(code_s: float = 0.1) -> tuple[Load, ...]:
    """Of a model of `PARAMETERS`, by the ratios of the ladder."""
    plain = 2 * 3 / 4 * 4 * PARAMETERS / BUCKETS
    return tuple(
        Load((plain / rung.ratio,) * BUCKETS, 2, 0.0 if rung.codec == PLAIN else code_s, ()) for rung in LADDER
    )


def situation(mbit: float, *, compute_s: float = 2.0, byte_s: float = 0.0, **more: float) -> Situation:
    link = Link(mbit * 1e6 / 8, more.pop("latency_s", 1e-4))
    window = Window(compute_s, compute_s * 2 / 3, 1.0, byte_s)
    return Situation(4, link, window, more.pop("rest_s", 0.1), loads(**more))


def test_on_a_fast_link_compression_does_not_pay():
    found = advise(situation(10_000))
    assert found.chosen.rung.codec == PLAIN
    assert found.sentences == (
        "Your link is fast enough: plain DDP keeps 100% of the speed without any exchange. "
        "Compression does not pay here.",
    )
    assert found.rho == pytest.approx(60e6 / 1.25e9 / 2.1)


def test_the_least_lossy_rung_that_hides_is_taken_and_its_gain_is_said():
    found = advise(situation(60))
    assert str(found.chosen.rung) == "all|int4(block=64)"
    assert found.chosen.hides and not found.rows[2].hides
    assert found.rho == pytest.approx(60e6 / 7.5e6 / 2.1)
    assert found.sentences[0].startswith("Take all|int4(block=64): a step of 2.")
    assert "times as fast as plain DDP" in found.sentences[0] and "instead of 60 MB a step" in found.sentences[0]
    assert found.sentences[1:] == (AUTO,)


def test_where_nothing_hides_it_says_what_would_help():
    found = advise(situation(5))
    assert found.chosen.allowed and not found.chosen.hides
    assert "It still waits" in found.sentences[1]
    assert str(LADDER[-1]) in found.sentences[1]
    assert "step.accumulate" in found.sentences[1]


def test_limits_are_the_controllers():
    slow = situation(10)
    assert advise(slow).chosen.allowed
    wide = advise(slow, max_ratio=1e9, min_density=0.0)
    assert all(row.allowed for row in wide.rows)
    assert wide.chosen.step_s < advise(slow).chosen.step_s


def test_a_byte_that_costs_the_processor_makes_plain_dearer_than_a_rung_of_few_bytes():
    free, dear = advise(situation(100_000)), advise(situation(100_000, byte_s=5e-9))
    assert dear.rows[0].step_s - free.rows[0].step_s == pytest.approx(60e6 * 5e-9, rel=0.05)
    assert free.best == 0 and dear.best > 0


@settings(deadline=None, max_examples=60)
@given(
    mbit=st.floats(1, 1e5),
    compute_s=st.floats(0.01, 100),
    rest_s=st.floats(0, 10),
    code_s=st.floats(0, 1),
    busy=st.floats(0, 0.3),
)
def test_no_forecast_beats_the_wire_or_a_step_without_an_exchange(mbit, compute_s, rest_s, code_s, busy):
    byte_s = busy / (2 * mbit * 1e6 / 8)
    asked = situation(mbit, compute_s=compute_s, byte_s=byte_s, rest_s=rest_s, code_s=code_s)
    found = advise(asked)
    for row in found.rows:
        assert row.step_s >= asked.none_s * (1 - 1e-9)
        assert row.step_s >= row.sent_bytes / asked.link.bytes_per_s
        assert row.kept_share <= 1 + 1e-9
        assert row.vs_plain == pytest.approx(found.rows[0].step_s / row.step_s)
        assert row.hides == (row.exposed_s <= HIDDEN_SHARE * row.step_s)
    faster = dataclasses.replace(asked, link=Link(2 * asked.link.bytes_per_s, asked.link.latency_s))
    for slow, quick in zip(found.rows, advise(faster).rows, strict=True):
        assert quick.step_s <= slow.step_s * (1 + (1e-9 if busy == 0 else 0.02))


@settings(deadline=None, max_examples=60)
@given(mbit=st.floats(1, 1e5), compute_s=st.floats(0.01, 100), code_s=st.floats(0, 1))
def test_the_best_rung_is_the_one_that_the_controller_picks(mbit, compute_s, code_s):
    asked = situation(mbit, compute_s=compute_s, code_s=code_s)
    times = [
        forecast(asked.window, asked.link, load).step_s if within_limits(rung) else None
        for rung, load in zip(asked.rungs, asked.loads, strict=True)
    ]
    found = advise(asked)
    assert found.best in (pick(times, slack=SLACK), 0)
    if found.best == 0:
        assert max(row.vs_plain for row in found.rows if row.allowed) < 1.06


def test_buckets_that_are_ready_evenly_are_the_default_and_late_ones_cost():
    window, link = Window(1.0, 0.6, 1.0), Link(1e6)
    even = Load((5e4,) * 5, 1, 0.0)
    said = dataclasses.replace(even, ready=(0.0, 0.25, 0.5, 0.75, 1.0))
    late = dataclasses.replace(even, ready=(0.0, 1.0, 1.0, 1.0, 1.0))
    assert forecast(window, link, said) == forecast(window, link, even)
    assert forecast(window, link, late).exposed_s == pytest.approx(0.2)
    assert forecast(window, link, even).exposed_s == pytest.approx(0.05)


def test_bytes_cost_computing_only_while_there_is_computing():
    window, link = Window(1.0, 0.5, 1.0, 1e-7), Link(1e6)
    few, many = Load((2e5,), 1, 0.0, (0.0,)), Load((4e6,), 1, 0.0, (0.0,))
    assert forecast(window, link, few).step_s == pytest.approx(1.0 + 0.02)
    hidden = 0.5e6 * 1e-7
    assert forecast(window, link, many).step_s == pytest.approx((1.0 - 0.5) * (1 + hidden) + 4.0)


def test_a_pattern_that_does_not_fill_the_link_keeps_it_longer():
    window, link = Window(1.0, 0.5, 1.0), Link(1e6)
    full = Load((1e6,) * 4, 1, 0.0)
    slack = dataclasses.replace(full, stretch=1.25)
    wire = forecast(window, link, slack).step_s - forecast(window, link, full).step_s
    assert wire == pytest.approx(1.0)
    assert forecast(window, Link(0.8e6), full) == forecast(window, link, slack)

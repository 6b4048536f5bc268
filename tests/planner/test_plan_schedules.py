"""The simulator against the closed forms of the schedules' papers, and the makespan against the simulator."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainingkit.planner.schedule import SCHEDULES, PipeCosts, makespan, simulate
from trainingkit.planner.schedule.registry import Shape
from trainingkit.planner.search.bounds import pipe_bound_s


def equal(p: int, v: int, forward: float, backward: float, weight: float = 0.0) -> PipeCosts:
    return PipeCosts(*(((seconds / v,) * v,) * p for seconds in (forward, backward, weight)))


def end_s(schedule: str, costs: PipeCosts, micros: int) -> float:
    return max(event.end_s for event in simulate(schedule, costs, micros))


@pytest.mark.parametrize("p", [1, 2, 4, 7])
@pytest.mark.parametrize("m", [1, 3, 8, 16])
def test_1f1b_and_gpipe_have_the_textbook_bubble(p: int, m: int) -> None:
    for schedule in ("1f1b", "gpipe"):
        assert end_s(schedule, equal(p, 1, 1.0, 2.0), m) == pytest.approx((m + p - 1) * 3.0)


@pytest.mark.parametrize(("p", "m", "v"), [(2, 4, 2), (4, 8, 3), (4, 4, 2), (8, 16, 4)])
def test_interleaving_divides_the_bubble(p: int, m: int, v: int) -> None:
    assert end_s("interleaved", equal(p, v, 1.0, 2.0), m) == pytest.approx(3.0 * m + 3.0 * (p - 1) / v)


@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 8), (8, 16)])
def test_zero_bubble_leaves_a_third(p: int, m: int) -> None:
    assert end_s("zb-h1", equal(p, 1, 1.0, 1.0, 1.0), m) == pytest.approx(3.0 * m + (p - 1))


@given(
    st.sampled_from(["1f1b", "interleaved", "zb-h1", "zb-v", "gpipe"]),
    st.integers(2, 5),
    st.integers(1, 24),
    st.lists(st.floats(0.1, 3.0), min_size=5, max_size=5),
    st.floats(0.0, 0.5),
)
@settings(deadline=None, max_examples=60)
def test_makespan_is_the_simulators_and_above_its_bound(
    schedule: str, p: int, m: int, seconds: list[float], send: float
) -> None:
    v = 2 if SCHEDULES.get(schedule).needs_chunks else 1
    m = m * p if schedule == "interleaved" else m
    weight = 0.5 if SCHEDULES.get(schedule).splits else 0.0
    rows = [tuple(tuple(x * k for _ in range(v)) for x in seconds[:p]) for k in (1.0, 2.0, weight)]
    costs = PipeCosts(rows[0], rows[1], rows[2], send)
    exact = end_s(schedule, costs, m)
    assert makespan(schedule, costs, m) == pytest.approx(exact, rel=0.03)
    assert pipe_bound_s(schedule, costs, m) <= exact * (1 + 1e-9)


@pytest.mark.parametrize("name", SCHEDULES.names())
def test_every_schedule_does_all_work_once_and_never_overlaps(name: str) -> None:
    entry = SCHEDULES.get(name)
    v = 2 if entry.needs_chunks else 1
    shape = Shape(4, 8, v)
    assert entry.legal(shape)
    costs = equal(4, v, 1.0, 1.5, 0.5 if entry.splits else 0.0)
    events = simulate(name, costs, 8)
    kinds = "FBW" if entry.splits else "FB"
    for stage in range(4):
        mine = [event for event in events if event.stage == stage]
        wanted = {(kind, micro, chunk) for kind in kinds for micro in range(8) for chunk in range(v)}
        assert sorted(tuple(event.work) for event in mine) == sorted(wanted)
        assert all(one.end_s <= two.start_s + 1e-12 for one, two in itertools.pairwise(mine))
        assert 0 < entry.held(shape, stage) <= 8


@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 8), (8, 32)])
def test_the_folded_schedule_has_less_bubble_and_the_memory_of_1f1b(p: int, m: int) -> None:
    folded = end_s("zb-v", equal(p, 2, 1.0, 1.0, 1.0), m)
    assert 3.0 * m < folded <= end_s("zb-h1", equal(p, 1, 1.0, 1.0, 1.0), m)
    for stage in range(p):
        held = most = 0
        for work in SCHEDULES.get("zb-v").order(Shape(p, m, 2), stage):
            held += {"F": 1, "B": 0, "W": -1}[work.kind]
            most = max(most, held)
        assert most <= 2 * SCHEDULES.get("zb-v").held(Shape(p, m, 2), stage)


def test_held_micro_batches_are_those_of_the_order() -> None:
    """1F1B and interleaved: the most forwards without their backward, in whole stages."""
    for name, v in (("1f1b", 1), ("interleaved", 3)):
        entry, shape = SCHEDULES.get(name), Shape(4, 12, v)
        for stage in range(4):
            held = most = 0
            for work in entry.order(shape, stage):
                held += 1 if work.kind == "F" else -1
                most = max(most, held)
            assert entry.held(shape, stage) == pytest.approx(most / v)

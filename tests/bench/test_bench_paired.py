"""Turns alternate within rounds, time is shared out, drift cancels, and a planted slow-down is found."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable

import pytest

from trainingkit.bench.paired import (
    ContenderFailed,
    Plan,
    Turns,
    aa,
    attending,
    goes_on,
    is_quiet,
    measure,
    order,
)

NAMES = ["none", "none again", "ours", "plain"]


def plan(**more) -> Plan:
    return Plan("none", "none again", ("ours",), **{"budget_s": 1e9, **more})


def steady(costs: dict[str, float], noise: float = 0.0, seed: int = 0) -> Callable[[str], float]:
    draw = random.Random(seed)
    return lambda name: costs[name] * draw.lognormvariate(0.0, noise)


COSTS = {"none": 1.0, "none again": 1.0, "ours": 1.1, "plain": 10.0}


def test_the_order_is_the_same_on_all_ranks_and_changes_from_round_to_round():
    orders = [tuple(order(NAMES, number, seed=3)) for number in range(50)]
    assert orders == [tuple(order(NAMES[::-1], number, seed=3)) for number in range(50)]
    assert all(sorted(found) == sorted(NAMES) for found in orders)
    assert len(set(orders)) > 10
    firsts = [found[0] for found in orders]
    assert all(firsts.count(name) >= 5 for name in NAMES)


def test_the_core_attends_every_round_and_guests_get_no_more_than_their_share():
    wanted = plan(guests=("plain",), rounds=60, guest_turns=3)
    turns = measure(wanted, steady(COSTS))
    assert turns.rounds == 60
    assert all(len(turns.seconds[name]) == 60 for name in wanted.core)
    core_s = sum(turns.spent_s(name) for name in wanted.core)
    assert 0.8 * core_s <= turns.spent_s("plain") <= core_s + COSTS["plain"]
    assert set(turns.seconds["plain"]) < set(range(60))


def test_a_very_slow_guest_still_gets_its_least_turns():
    turns = measure(plan(guests=("plain",), rounds=4, guest_turns=3), steady({**COSTS, "plain": 1000.0}))
    assert len(turns.seconds["plain"]) == 3


def test_a_quiet_machine_ends_after_the_rounds_and_a_noisy_one_goes_on_to_the_limit():
    quiet = measure(plan(rounds=12, most_rounds=90), steady(COSTS, noise=0.001))
    assert quiet.rounds == 12
    assert is_quiet(aa(plan(), quiet))
    noisy = measure(plan(rounds=12, most_rounds=40), steady(COSTS, noise=0.5))
    assert noisy.rounds == 40
    assert not is_quiet(aa(plan(), noisy))


def test_rounds_are_added_until_the_machine_looks_quiet():
    turns = measure(plan(rounds=12, most_rounds=500), steady(COSTS, noise=0.03))
    assert 12 < turns.rounds < 500
    assert is_quiet(aa(plan(), turns))


def test_the_budget_ends_it_but_not_before_the_least_turns():
    wanted = plan(rounds=100, budget_s=20.0)
    turns = measure(wanted, steady(COSTS))
    assert turns.total_s() >= 20.0
    assert turns.rounds <= 8
    assert not goes_on(wanted, turns)
    assert measure(plan(rounds=100, budget_s=0.0), steady(COSTS)).rounds == wanted.guest_turns


def test_drift_that_is_slower_than_a_round_cancels():
    clock = itertools.count()

    def take_turn(name: str) -> float:
        return COSTS[name] * (1.0 + next(clock) / 50)

    turns = measure(plan(rounds=40, most_rounds=40), take_turn)
    assert turns.ratio("ours", "none").value == pytest.approx(1.1, abs=0.02)
    assert turns.kept_share("ours", "none").value == pytest.approx(1 / 1.1, abs=0.02)
    late = [seconds for number, seconds in turns.seconds["ours"].items() if number >= 20]
    assert min(late) > 1.5 * turns.seconds["ours"][0]


def test_a_contender_that_fails_keeps_its_reason_and_the_others_go_on():
    count = itertools.count()

    def take_turn(name: str) -> float:
        if name == "plain" and next(count) == 2:
            raise ContenderFailed("rank 1: the wire is cut")
        return COSTS[name]

    turns = measure(plan(guests=("plain",), rounds=10), take_turn)
    assert turns.failed == {"plain": "rank 1: the wire is cut"}
    assert len(turns.seconds["plain"]) == 2
    assert len(turns.seconds["ours"]) == turns.rounds == 10


def test_without_a_reference_there_is_nothing_to_measure():
    def take_turn(name: str) -> float:
        raise ContenderFailed("gone")

    turns = measure(plan(guests=("plain",)), take_turn)
    assert turns.rounds == 1
    assert set(turns.failed) == set(NAMES)
    assert attending(plan(), turns) == []


def test_ratios_are_taken_within_a_round_only():
    turns = Turns()
    for number in range(6):
        turns.add("none", number, 2.0)
    turns.add("plain", 1, 6.0)
    turns.add("plain", 4, 8.0)
    turns.add("plain", 9, 100.0)
    assert turns.ratios("plain", "none") == [3.0, 4.0]
    assert turns.ratios("nobody", "none") == []


LOOPS = 20_000
PLANTED = 1.05


def spin(loops: int) -> float:
    """Real work, timed by the processor time of this thread: neighbours on the machine count for less."""
    before = time.thread_time()
    total = 0
    for number in range(loops):
        total += number & 3
    assert total >= 0
    return time.thread_time() - before


def planted_turn(name: str) -> float:
    return spin(round(LOOPS * (PLANTED if name == "ours" else 1.0)))


def noisy_turn(seed: int) -> Callable[[str], float]:
    """What a shared machine does to turns: jitter of 2 % each, and a speed that wanders by 1 % from turn to turn."""
    draw = random.Random(seed)
    speed = 1.0

    def take_turn(name: str) -> float:
        nonlocal speed
        speed *= draw.lognormvariate(0.0, 0.01)
        return speed * draw.lognormvariate(0.0, 0.02) * (PLANTED if name == "ours" else 1.0)

    return take_turn


def check_planted(turn_of: Callable[[int], Callable[[str], float]]) -> None:
    found = []
    for seed in range(20):
        turns = measure(plan(rounds=25, most_rounds=60, seed=seed), turn_of(seed))
        found.append(turns.ratio("ours", "none"))
        assert aa(plan(), turns).value == pytest.approx(1.0, abs=0.03)
    assert all(interval.low > 1.0 for interval in found), found
    assert sum(interval.value for interval in found) / len(found) == pytest.approx(PLANTED, abs=0.02)


def test_a_planted_slow_down_of_five_per_cent_is_found_with_its_sign_twenty_times_of_twenty():
    check_planted(noisy_turn)


@pytest.mark.slow
def test_a_planted_slow_down_of_real_work_is_found_on_a_machine_that_does_nothing_else():
    check_planted(lambda seed: planted_turn)

"""Rungs apart in forecast, ladder, controller and advice, on links and codecs that cost what a formula says."""

from __future__ import annotations

import functools
import math
from dataclasses import replace

import pytest
from auto_plant import BUCKETS, PARAMETERS, RANKS, Plant, load_of
from hypothesis import given, settings
from hypothesis import strategies as st

from trainingkit.sync.auto.advice import Situation, advise
from trainingkit.sync.auto.controller import APART_WORTH, ASKED_WORTH, STABLE_STEPS, Controller
from trainingkit.sync.auto.course import Course
from trainingkit.sync.auto.forecast import Link, Load, Window, forecast, pick, pick_of
from trainingkit.sync.auto.ladder import APART, LADDER, PLAIN, START, Rung, whole_ladder
from trainingkit.sync.auto.seen import Seen
from trainingkit.sync.auto.trials import SLACK
from trainingkit.sync.every import parse_every

CODE_S = 0.25
APPLY_S = 0.04
WINDOW = Window(2.3, 1.4, 1.0)


@functools.cache
def load(rung: Rung) -> Load:
    """With a codec that is dear, as where hosts share cores."""
    told = load_of(rung)
    code_s = 0.0 if rung.codec == PLAIN else CODE_S
    if not rung.apart:
        return Load(told.bucket_bytes, told.trips, code_s)
    return Load(told.bucket_bytes, told.trips, code_s, every=rung.every, lag=rung.tau, apply_s=APPLY_S)


class ApartPlant(Plant):
    """A job whose steps on rungs apart are seen once a round."""

    def __init__(
        self, mbit: float, *, worth: float = APART_WORTH, most: int = 4, byte_s: float = 0.0, **more: float
    ) -> None:
        self.ladder = whole_ladder(most)
        self.worth = worth
        self.window = replace(WINDOW, byte_s=byte_s)
        super().__init__(mbit, **more)  # pyright: ignore[reportArgumentType]

    def __post_init__(self) -> None:
        super().__post_init__()
        limits = {"max_ratio": 10.0, "min_density": 0.05, "apart_worth": self.worth}
        self.controller = Controller(self.ladder, shared=1.0, try_apart=self.worth == ASKED_WORTH, **limits)
        self.controller.loads = lambda: [load(rung) for rung in self.ladder]
        self.course = Course(self.controller.rung)
        self._since = 0

    def step(self, rung: Rung) -> Seen:
        told = forecast(self.window, self.link, load(rung))
        spent_s = told.step_s - told.exposed_s
        self._since = self._since + 1 if rung.apart else 0
        if rung.apart and (self._since % rung.every or self._since == rung.every):
            return Seen(loss=self.loss)
        return Seen(
            window_s=self._jitter(spent_s),
            hide_s=-1.0 if rung.apart else self._jitter(WINDOW.hide_s),
            exposed_s=self._jitter(told.exposed_s),
            code_s=self._jitter(CODE_S) if rung.codec != PLAIN else 0.0,
            rate=self._jitter(self.link.bytes_per_s),
            latency_s=self.latency_s,
            loss=self._jitter(self.loss),
        )

    @property
    def link(self) -> Link:
        return Link(self.mbit * 1e6 / 8, self.latency_s)

    def best(self) -> Rung:
        stable = self.controller.state_dict()["lifted"]
        allowed = [rung for rung in self.ladder if stable or rung.ratio <= 10.0]
        times = [forecast(self.window, self.link, load(rung)).step_s for rung in allowed]
        return allowed[pick_of(times, [rung.apart for rung in allowed], slack=SLACK, worth=self.worth)]


def test_a_round_is_spread_over_its_steps() -> None:
    window, link = Window(2.0, 1.0, 1.0), Link(1e6, 0.5)
    found = forecast(window, link, Load((3e6, 3e6), 2, 0.4, every=4, lag=2, apply_s=0.2))
    spent_s = 2.0 + (0.4 + 0.2) / 4
    assert found.exposed_s == pytest.approx((1.0 + 6.0 + 0.2 - 2 * spent_s) / 4)
    assert found.step_s == pytest.approx(spent_s + found.exposed_s)
    assert forecast(window, link, Load((3e6, 3e6), 2, 0.4, every=4, lag=4, apply_s=0.2)).exposed_s == 0.0


@settings(deadline=None, max_examples=60)
@given(st.floats(1e5, 1e9), st.floats(0.0, 0.5), st.integers(2, 16), st.integers(0, 15))
def test_more_time_and_fewer_rounds_never_make_a_step_longer(rate: float, code_s: float, every: int, lag: int) -> None:
    lag = min(lag, every)
    link = Link(rate, 0.001)
    step_s = forecast(WINDOW, link, Load((1e6,) * 8, 2, code_s, every=every, lag=lag)).step_s
    assert forecast(WINDOW, link, Load((1e6,) * 8, 2, code_s, every=every + 1, lag=lag)).step_s <= step_s * (1 + 1e-12)
    assert forecast(WINDOW, link, Load((1e6,) * 8, 2, code_s, every=every, lag=lag + 1)).step_s <= step_s * (1 + 1e-12)
    assert step_s >= WINDOW.compute_s


def test_the_whole_ladder() -> None:
    assert whole_ladder(1) == LADDER
    ladder = whole_ladder(8)
    assert [rung for rung in ladder if rung.apart] == list(APART)
    assert [rung for rung in ladder if not rung.apart] == list(LADDER)
    assert ladder.index(APART[0]) == 1 + ladder.index(Rung("all|int2(block=256)", normalise=True))
    assert not any(rung.every > 4 for rung in whole_ladder())
    for rung in APART:
        assert str(parse_every(str(rung))) == str(rung)


def test_apart_only_where_all_gradients_are_longer_by_more_than_it_is_worth() -> None:
    apart = [False, False, True, True]
    assert pick_of([5.0, 1.15, 1.0, 0.99], apart, slack=0.02, worth=0.2) == 1
    assert pick_of([5.0, 1.25, 1.0, 0.99], apart, slack=0.02, worth=0.2) == 2
    assert pick_of([None, 1.25, None, 0.9], apart, slack=0.02, worth=0.2) == 3
    assert pick_of([1.0, 0.9, 0.95, 0.95], apart, slack=0.02, worth=0.2) == pick([1.0, 0.9], slack=0.02)


@pytest.mark.parametrize("mbit", [10.0, 25.0, 60.0, 100.0, 300.0, 1000.0, 20000.0])
@pytest.mark.parametrize("worth", [APART_WORTH, ASKED_WORTH])
def test_the_least_lossy_that_hides_is_found_and_kept(mbit: float, worth: float) -> None:
    plant = ApartPlant(mbit, worth=worth)
    plant.run(60)
    assert plant.controller.settled
    assert plant.controller.rung == plant.best(), plant.moves
    moves = len(plant.moves)
    plant.run(STABLE_STEPS - 80)
    assert len(plant.moves) - moves <= 1


def test_where_it_is_dear_to_code_and_the_person_asked_ranks_train_apart_at_100_mbit() -> None:
    asked, decided = ApartPlant(100.0, worth=ASKED_WORTH), ApartPlant(100.0)
    for plant in (asked, decided):
        plant.run(60)
    assert asked.controller.rung.apart
    assert not decided.controller.rung.apart, "a tenth of the speed is not worth more steps"


@pytest.mark.parametrize("mbit", [50.0, 100.0, 300.0, 1000.0])
@pytest.mark.parametrize("byte_s", [0.0, 5e-9, 20e-9, 40e-9])
def test_where_bytes_cost_the_processor_a_try_finds_the_best_rung(mbit: float, byte_s: float) -> None:
    """No forecast knows what they cost; a person who asked for speed gets the rung that is best by the true cost."""
    plant = ApartPlant(mbit, worth=ASKED_WORTH, byte_s=byte_s, noise=0.002)
    plant.run(80)
    assert plant.controller.settled
    assert plant.controller.rung == plant.best(), plant.moves
    moves = len(plant.moves)
    plant.run(STABLE_STEPS - 90)
    assert len(plant.moves) == moves


def test_nobody_is_tried_apart_who_did_not_ask() -> None:
    plant = ApartPlant(100.0, byte_s=20e-9)
    plant.run(80)
    assert not any(move.rung.apart for move in plant.moves)


def test_a_link_that_changes_leads_there_and_back() -> None:
    plant = ApartPlant(100.0)
    plant.run(60)
    assert not plant.controller.rung.apart
    plant.mbit = 25.0
    plant.run(60)
    assert plant.controller.rung.apart and plant.controller.rung == plant.best()
    plant.mbit = 1000.0
    plant.run(60)
    assert not plant.controller.rung.apart and plant.controller.rung == plant.best()
    assert "the link went from 25" in "".join(move.reason for move in plant.moves)


def test_a_loss_spike_leads_back_to_a_rung_within_the_limits() -> None:
    plant = ApartPlant(25.0, noise=0.0)
    plant.run(60)
    for spike in (300.0, 3e6):
        assert plant.controller.rung.apart
        plant.loss = spike
        plant.run(6)
        plant.loss = 3.0
        plant.run(40)
    assert plant.controller.rung == Rung("all|int3(block=64)", normalise=True), "int2 is beyond the limits yet"


def test_nobody_goes_back_for_a_try() -> None:
    plant = ApartPlant(60.0, worth=ASKED_WORTH)
    plant.run(60)
    apart = [move.rung.apart for move in plant.moves]
    assert True in apart
    assert all(apart[apart.index(True) :])


def test_a_course_with_rungs_apart_goes_through_its_state() -> None:
    course, again = Course(Rung(START)), Course(Rung(START))
    course.move(10, APART[1])
    again.load(course.state(), Rung(START))
    assert again.at(11) == APART[1]
    again.load([[3, "all|int8(block=64)", False]], Rung(START))
    assert again.at(4) == Rung("all|int8(block=64)")


def test_advice_shows_rungs_apart_and_takes_them_by_the_same_rule() -> None:
    ladder = whole_ladder()
    loads = tuple(load(rung) for rung in ladder)
    slow = advise(Situation(RANKS, Link(25e6 / 8, 0.002), WINDOW, 0.1, loads, ladder))
    assert slow.chosen.rung == Rung(START, every=4, tau=2)
    assert slow.chosen.hides and "train on their own" in slow.sentences[0]
    row = next(row for row in slow.rows if row.rung == Rung(START, every=2, tau=1))
    assert row.sent_bytes == pytest.approx(2 * (RANKS - 1) / RANKS * 4 * PARAMETERS / Rung(START).ratio / 2)
    quick = Situation(RANKS, Link(100e6 / 8, 0.002), WINDOW, 0.1, loads, ladder)
    assert not advise(quick).chosen.rung.apart
    assert advise(quick, apart_worth=ASKED_WORTH).chosen.rung.apart
    assert BUCKETS > 1 and math.isfinite(slow.rho)

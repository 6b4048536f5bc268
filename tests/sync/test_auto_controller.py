"""The controller on simulated links: the right rung soon, then rest; guards; the same decisions everywhere."""

from __future__ import annotations

import dataclasses
import json

import pytest
from auto_plant import Plant

from trainingkit.core.errors import CheckpointError
from trainingkit.sync.auto.controller import BARRED_STEPS, STABLE_STEPS, Controller
from trainingkit.sync.auto.ladder import LADDER, PLAIN, START, Rung, within_limits
from trainingkit.sync.auto.seen import Seen


@pytest.mark.parametrize("mbit", [2.0, 10.0, 25.0, 60.0, 100.0, 200.0, 1000.0, 20000.0])
@pytest.mark.parametrize("seed", range(5))
def test_the_least_lossy_rung_that_hides_is_found_within_thirty_steps(mbit: float, seed: int) -> None:
    plant = Plant(mbit, seed=seed)
    plant.run(30)
    assert plant.controller.rung == plant.best()


@pytest.mark.parametrize("mbit", [10.0, 100.0, 1000.0])
def test_then_it_rests(mbit: float) -> None:
    plant = Plant(mbit, noise=0.03)
    plant.run(30)
    moves = len(plant.moves)
    plant.run(STABLE_STEPS - 50)
    assert len(plant.moves) - moves <= 1


@pytest.mark.parametrize("seed", range(5))
def test_a_link_that_changes_has_its_rung_within_thirty_steps(seed: int) -> None:
    plant = Plant(100.0, seed=seed)
    plant.run(40)
    for mbit in (10.0, 1000.0, 25.0):
        plant.mbit = mbit
        plant.run(30)
        assert plant.controller.rung == plant.best(), mbit
        moves = len(plant.moves)
        plant.run(50)
        assert len(plant.moves) - moves <= 1
        plant.run(20)
    assert any("the link went from" in move.reason for move in plant.moves)


def test_where_plain_is_as_fast_nothing_is_squeezed() -> None:
    plant = Plant(20000.0)
    plant.run(30)
    assert plant.controller.rung.codec == PLAIN


def test_a_codec_that_is_slower_than_it_says_is_left_for_plain() -> None:
    plant = Plant(600.0, compute_s=1.0, hide_s=0.6)
    honest = plant.step

    def slow(rung: Rung) -> Seen:
        seen = honest(rung)
        return seen if rung.codec == PLAIN else dataclasses.replace(seen, window_s=seen.window_s + 0.4)

    plant.step = slow
    plant.run(60)
    assert plant.controller.rung.codec == PLAIN


def test_limits_hold_until_the_run_has_proved_stable() -> None:
    plant = Plant(4.0)
    plant.run(STABLE_STEPS - 5)
    assert all(within_limits(move.rung) for move in plant.moves)
    plant.run(60)
    assert not within_limits(plant.controller.rung)
    assert f"{STABLE_STEPS} steady steps" in plant.moves[-1].reason


def test_a_loss_spike_sends_it_a_rung_back_and_bars_the_rung() -> None:
    plant = Plant(100.0)
    plant.run(40)
    before = plant.controller.index
    plant.loss = 9.0
    plant.run(3)
    assert plant.controller.index == before - 1, "rows of the old rung that come after the move complain once more"
    assert "the loss jumped to" in plant.moves[-1].reason
    plant.loss = 3.0
    plant.run(100)
    assert plant.controller.index < before
    assert BARRED_STEPS > 100


def test_a_rung_that_is_barred_no_longer_is_used_again() -> None:
    plant = Plant(100.0)
    plant.run(40)
    before = plant.controller.index
    plant.loss = 9.0
    plant.run(3)
    plant.loss = 3.0
    plant.run(BARRED_STEPS - 10)
    assert plant.controller.index < before
    plant.run(60)
    assert plant.controller.rung == plant.best()
    assert plant.controller.index >= before


def test_a_step_given_up_costs_no_rung_beyond_the_limits_that_a_stable_run_was_allowed() -> None:
    plant = Plant(60.0)
    plant.run(STABLE_STEPS - 3)
    plant.mbit = 4.0
    plant.run(6)
    beyond = plant.controller.rung
    assert not within_limits(beyond)
    honest = plant.step
    plant.step = lambda rung: dataclasses.replace(honest(rung), committed=False)
    plant.run(1)
    plant.step = honest
    plant.run(5)
    assert plant.controller.rung == beyond


def test_a_loss_that_stays_higher_costs_one_rung() -> None:
    plant = Plant(10.0)
    plant.run(40)
    before = plant.controller.index
    plant.loss = 9.0
    plant.run(120)
    assert plant.controller.index >= before - 1


def test_a_barred_rung_bars_those_below_it() -> None:
    plant = Plant(4.0)
    plant.run(40)
    plant.loss = 9.0
    plant.run(2)
    back = plant.controller.index
    plant.run(STABLE_STEPS + 60)
    assert plant.controller.index <= back


def test_a_state_from_wider_limits_leads_to_a_move_within_the_present_ones() -> None:
    plant, tight = Plant(10.0), Plant(10.0)
    plant.run(40)
    state, course = plant.controller.state_dict(), plant.course.state()
    tight.controller = Controller(LADDER, shared=1.0, max_ratio=3.0, min_density=0.05)
    tight.controller.loads = plant.controller.loads
    assert not within_limits(plant.controller.rung, max_ratio=3.0)
    for lifted in (False, True):
        tight.controller.load_state_dict({**state, "lifted": lifted})
        tight.course.load(course, tight.controller.rung)
        tight.steps, tight.moves = plant.steps, []
        assert tight.course.at(tight.steps) == plant.course.at(plant.steps), "the wire goes on as the state says"
        tight.run(8)
        assert tight.course.at(tight.steps) == tight.controller.rung
        assert [within_limits(move.rung, max_ratio=3.0) for move in tight.moves] == [True] * (not lifted)
    assert tight.controller.rung == plant.controller.rung, "a run that has proved stable keeps what it has earned"


def test_messages_that_point_away_send_it_a_rung_back() -> None:
    plant = Plant(100.0)
    plant.run(40)
    before = plant.controller.index
    plant.cosine = 0.1
    plant.run(5)
    assert plant.controller.index == before - 1
    assert "cosine 0.10" in plant.moves[-1].reason


def test_two_controllers_with_the_same_view_decide_alike() -> None:
    first, second = Plant(30.0, seed=3, noise=0.05), Plant(30.0, seed=3, noise=0.05)
    for plant in (first, second):
        plant.run(40)
        plant.mbit = 300.0
        plant.run(40)
    assert first.moves == second.moves
    assert first.moves


def test_state_goes_through_json_and_keeps_the_rung() -> None:
    plant = Plant(10.0)
    plant.run(40)
    state = json.loads(json.dumps(plant.controller.state_dict()))
    again = Controller(LADDER, shared=1.0, max_ratio=10.0, min_density=0.05)
    again.load_state_dict(state)
    assert again.rung == plant.controller.rung
    assert again.state_dict() == state
    again.load_state_dict({})
    assert str(again.rung) == START
    with pytest.raises(CheckpointError, match=r"(?s)all\|int7.*next step"):
        again.load_state_dict({"rung": "all|int7"})

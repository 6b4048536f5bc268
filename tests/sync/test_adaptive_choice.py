"""When buckets choose anew, what they use meanwhile, and what is written down."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainingkit.codec import message_bytes
from trainingkit.core import decisions
from trainingkit.core.errors import ConfigError
from trainingkit.sync.auto.adaptive import FIRST_STEPS, LOOK_EVERY, RENEW_STEPS, Adaptive, Choice, Place
from trainingkit.sync.auto.course import LEARN_STEPS
from trainingkit.sync.auto.ladder import Rung
from trainingkit.sync.auto.moves import Move, read_moves, write_choice, write_move
from trainingkit.sync.auto.values import CANDIDATES, Look

INT2, INT3, INT4 = CANDIDATES[:3]
THREE, FOUR = Rung(INT3, normalise=True), Rung(INT4, normalise=True)
ELEMENTS = 4096
LARGE, MIDDLE, SMALL = (Place(name, ELEMENTS) for name in ("large", "middle", "small"))
COSTS = {codec: message_bytes(codec, ELEMENTS) for codec in CANDIDATES}


def bell(energy: float) -> Look:
    """What normal numbers look like."""
    return Look(energy, 7.0 * energy, 0.64 * energy, 4096.0)


SEEN = {LARGE: bell(80.0), MIDDLE: bell(1.0), SMALL: bell(0.02)}


class Flight:
    """Steps of an `Adaptive`, as the synchroniser makes them."""

    def __init__(self, *, active: bool = True) -> None:
        self.values = Adaptive(active=active)
        self.choices: list[Choice] = []
        self.values.on_choice = self.choices.append
        self.steps = 0

    def fly(self, steps: int, rung: Rung, seen: dict[Place, Look], *, then: Rung | None = None) -> None:
        for left in range(steps, 0, -1):
            if self.values.looks(self.steps):
                for place, look in seen.items():
                    self.values.look(place, look)
            self.steps += 1
            following = rung if left > 1 or then is None else then
            costs = dict.fromkeys(seen, COSTS)
            self.values.over(self.steps, rung, following, costs, committed=True)

    def codecs(self, rung: Rung) -> list[str]:
        return [self.values.codec(place, rung) for place in SEEN]


def test_the_first_choice_and_later_ones_come_at_known_steps() -> None:
    flight = Flight()
    flight.fly(FIRST_STEPS - 1, THREE, SEEN)
    assert flight.codecs(THREE) == [INT3] * 3
    flight.fly(1, THREE, SEEN)
    assert flight.codecs(THREE) == [INT4, INT3, INT2]
    flight.fly(RENEW_STEPS - FIRST_STEPS - 1, THREE, {LARGE: bell(1e-4), MIDDLE: bell(1.0), SMALL: bell(1e4)})
    assert flight.codecs(THREE) == [INT4, INT3, INT2]
    flight.fly(1, THREE, {LARGE: bell(1e-4), MIDDLE: bell(1.0), SMALL: bell(1e4)})
    assert flight.values.codec(SMALL, THREE) == INT4
    assert [choice.step for choice in flight.choices] == [FIRST_STEPS, RENEW_STEPS]
    assert flight.choices[0].codecs == {"large": INT4, "middle": INT3, "small": INT2}


def test_nothing_is_chosen_where_it_is_off() -> None:
    flight = Flight(active=False)
    flight.fly(2 * RENEW_STEPS, THREE, SEEN)
    assert (flight.codecs(THREE), flight.choices, flight.values.state_dict()) == ([INT3] * 3, [], {})
    assert flight.values.describe() == {}


def test_another_rung_is_chosen_for_at_once() -> None:
    flight = Flight()
    flight.fly(FIRST_STEPS + 3, THREE, SEEN, then=FOUR)
    assert flight.codecs(THREE) == [INT3] * 3, "of this rung nothing is known any more"
    assert flight.codecs(FOUR) != [INT3] * 3
    assert sum(COSTS[codec] for codec in flight.codecs(FOUR)) <= 3 * COSTS[INT4]


def test_a_rung_in_gradients_units_is_left_alone_and_a_new_unit_is_learned_first() -> None:
    flight = Flight()
    flight.fly(RENEW_STEPS + 1, Rung(INT3), SEEN, then=THREE)
    assert flight.choices == []
    moved = flight.steps
    flight.fly(LEARN_STEPS + LOOK_EVERY + 1, THREE, SEEN)
    assert len(flight.choices) == 1
    assert flight.choices[0].step > moved + LEARN_STEPS


def test_what_is_seen_in_a_step_that_was_given_up_does_not_count() -> None:
    flight = Flight()
    flight.values.look(LARGE, bell(9.0))
    flight.values.over(1, Rung(INT3), Rung(INT3), {LARGE: COSTS}, committed=False)
    assert flight.values.state_dict()["known"] == []


def test_a_bucket_of_zeros_keeps_the_rungs_codec() -> None:
    flight = Flight()
    flight.fly(FIRST_STEPS, THREE, {**SEEN, Place("still", ELEMENTS): Look()})
    assert flight.codecs(THREE) == [INT4, INT3, INT2]
    assert flight.values.codec(Place("still", ELEMENTS), THREE) == INT3


def test_the_state_goes_on_where_it_was() -> None:
    flight = Flight()
    flight.fly(RENEW_STEPS - 4, THREE, SEEN)
    other = Flight()
    other.values.load_state_dict(json.loads(json.dumps(flight.values.state_dict())))
    other.steps = flight.steps
    assert other.codecs(THREE) == flight.codecs(THREE)
    turned = {LARGE: bell(1e-4), MIDDLE: bell(1.0), SMALL: bell(1e4)}
    for one in (flight, other):
        one.fly(LOOK_EVERY, THREE, turned)
    assert other.choices == flight.choices[1:]
    assert other.values.state_dict() == flight.values.state_dict()
    other.values.load_state_dict({})
    assert other.codecs(THREE) == [INT3] * 3


def test_buckets_that_were_cut_anew_never_take_more_bytes() -> None:
    """Of the old ones, those that are the same keep their codec; the others take the cheapest until the next choice."""
    flight = Flight()
    flight.fly(FIRST_STEPS, THREE, SEEN)
    cut = Place("middle", 2 * ELEMENTS)
    assert flight.values.codec(cut, THREE) == INT2
    assert message_bytes(INT4, ELEMENTS) + message_bytes(INT2, 2 * ELEMENTS) <= 3 * COSTS[INT3]


def test_a_choice_is_written_beside_the_moves(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    write_choice(path, Choice(10, {"a": INT4}, "for a test"))
    with pytest.raises(ConfigError):
        read_moves(path)
    write_move(path, Move(0, THREE, "begin"))
    assert [move.rung for move in read_moves(path)] == [THREE]
    row = decisions.read(path)[0]
    assert (row["step"], row["choice"], row["value"], row["reason"]) == (10, "values", {"a": INT4}, "for a test")

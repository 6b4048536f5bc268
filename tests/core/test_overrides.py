"""Overrides of a recipe: their order does not matter, and none is lost."""

from itertools import permutations

import pytest

from trainingkit.core.errors import ConfigError
from trainingkit.core.toml import apply_overrides

RECIPE = {"seed": 3, "data": {"kind": "stdlib", "seq_len": 256}, "optimizer": {"kind": "adamw", "lr": 0.1}}


@pytest.mark.parametrize("order", list(permutations(["data.kind=text", 'data.path="books/"', "data.seq_len=8"])))
def test_a_setting_given_before_its_kind_is_kept(order):
    data = apply_overrides(RECIPE, order)["data"]
    assert data == {"kind": "text", "path": "books/", "seq_len": 8}


def test_a_new_kind_starts_afresh_and_other_tables_stay():
    changed = apply_overrides(RECIPE, ["data.kind=text"])
    assert changed == RECIPE | {"data": {"kind": "text"}}
    assert RECIPE["data"] == {"kind": "stdlib", "seq_len": 256}


def test_the_later_of_two_wins():
    assert apply_overrides(RECIPE, ["seed=4", "seed=5"])["seed"] == 5
    assert apply_overrides(RECIPE, ["optimizer.lr=1", "optimizer={lr = 2, eps = 3}"])["optimizer"] == {
        "kind": "adamw",
        "lr": 2,
        "eps": 3,
    }


def test_what_is_no_toml_is_text():
    assert apply_overrides({}, ["a.b=books/"]) == {"a": {"b": "books/"}}


@pytest.mark.parametrize(
    ("text", "field", "words"),
    [
        ("seed", "--set", "must name a setting and a value"),
        ("data..path=1", "--set", "must name a setting and a value"),
        ("seed.x=1", "seed.x", "'seed' is a value, not a section"),
        ("optimizer.lr.x=1", "optimizer.lr.x", "'optimizer.lr' is a value, not a section"),
    ],
)
def test_bad_overrides_are_explained(text, field, words):
    with pytest.raises(ConfigError) as caught:
        apply_overrides(RECIPE, [text])
    assert caught.value.field == field
    assert words in caught.value.problem
    assert caught.value.next_step

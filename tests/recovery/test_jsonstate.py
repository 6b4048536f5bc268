import math
import struct

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainingkit.core.errors import CheckpointError
from trainingkit.recovery import jsonstate

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=True, allow_infinity=True)
    | st.text()
    | st.binary(max_size=9)
)
KEYS = st.text(max_size=4) | st.sampled_from(["$tuple", "$", "$dict"]) | st.integers() | st.tuples(st.integers())
STATES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4) | st.lists(inner, max_size=3).map(tuple)
    ),
    max_leaves=12,
)


def bits(value):
    """A form in which equal means: same types, same float bits, same order."""
    if isinstance(value, float):
        return ("float", struct.pack(">d", value))
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, [bits(item) for item in value])
    if isinstance(value, dict):
        return ("dict", [(bits(key), bits(item)) for key, item in value.items()])
    return (type(value).__name__, value)


@settings(deadline=None, max_examples=200)
@given(STATES)
def test_what_comes_back_is_what_went_in(value):
    assert bits(jsonstate.loads(jsonstate.dumps(value, where="state"), where="state")) == bits(value)


def test_a_nan_keeps_its_payload():
    odd = struct.unpack(">d", bytes.fromhex("fff8000000001234"))[0]
    back = jsonstate.loads(jsonstate.dumps([odd, -0.0, math.inf], where="state"), where="state")
    assert bits(back) == bits([odd, -0.0, math.inf])


@pytest.mark.parametrize("alien", [torch.zeros(2), {1, 2}, object(), 1j])
def test_what_has_no_json_form_is_refused_with_its_path(alien):
    with pytest.raises(CheckpointError, match="no JSON form") as caught:
        jsonstate.dumps({"loader": {"order": [1, alien]}}, where="state")
    assert caught.value.field == "state.loader.order[1]"
    assert type(alien).__name__ in str(caught.value.found)


def test_a_state_that_contains_itself_is_refused():
    circle = {}
    circle["self"] = circle
    with pytest.raises(CheckpointError, match="contains itself"):
        jsonstate.dumps(circle, where="state")


@pytest.mark.parametrize("text", ["", "{", '{"$what": 1}', '{"$float": "00"}', '{"$tuple": [], "x": 1}', b"\xff"])
def test_other_text_is_refused(text):
    with pytest.raises(CheckpointError, match="not the state that a snapshot holds"):
        jsonstate.loads(text, where="state")

"""Settings of an optimizer's groups: what a step was taken with is put back, or its change is told."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from trainingkit.recovery import jsonstate
from trainingkit.trainer.groups import set_settings, settings_of, unknown_in


def optimizer_of(**settings: Any) -> torch.optim.AdamW:
    """Two groups, the second with a learning rate of its own."""
    layers = nn.Linear(2, 2), nn.Linear(2, 2)
    groups: list[dict[str, Any]] = [{"params": list(layer.parameters())} for layer in layers]
    return torch.optim.AdamW([groups[0], {**groups[1], "lr": 1.0, **settings}], lr=0.1)


def kept_of(optimizer: torch.optim.Optimizer) -> Any:
    """Its settings as they come out of a journal."""
    return jsonstate.loads(jsonstate.dumps(list(settings_of(optimizer)), where="groups"), where="groups")


def test_what_was_changed_is_put_back_in_its_form() -> None:
    optimizer = optimizer_of(scale=torch.tensor(2.0), label="a")
    group = optimizer.param_groups[1]
    group.update(weight_decay=0.5, betas=(0.8, 0.9), label="b")
    group["scale"].fill_(3.0)
    kept = kept_of(optimizer)
    other = optimizer_of(scale=torch.tensor(2.0), label="a")
    tensor = other.param_groups[1]["scale"]
    assert set_settings(other, kept) is None
    assert settings_of(other) == settings_of(optimizer)
    assert other.param_groups[1]["betas"] == (0.8, 0.9) and other.param_groups[1]["label"] == "b"
    assert other.param_groups[1]["scale"] is tensor and tensor == 3.0
    assert [group["lr"] for group in other.param_groups] == [0.1, 1.0], "rates are recorded for themselves"


VALUES = [None, True, 1, 1.0, -0.0, math.inf, "a", (1, 2), [1, 2], (), {"a": 1}, {"a": 2}, {"a": (1, {2: 0.5})}, {}]
VALUES += [np.float32(0.1), np.float32(0.2), np.float64(0.1), np.int64(3), np.bool_(True), ("tuple", 1), ["unknown"]]


@pytest.mark.parametrize("after", VALUES, ids=repr)
@pytest.mark.parametrize("before", [0.5, {"a": 1}, (1, 2)], ids=repr)
def test_values_come_back_whatever_was_there(before: Any, after: Any) -> None:
    optimizer = optimizer_of(extra=before)
    assert set_settings(optimizer, kept_of(optimizer_of(extra=after))) is None
    found = optimizer.param_groups[1]["extra"]
    assert (type(found), repr(found)) == (type(after), repr(after))
    assert unknown_in(settings_of(optimizer)) is None


def test_a_tensor_inside_is_filled_where_it_is() -> None:
    tensor = torch.tensor(2.0)
    optimizer = optimizer_of(extra={"a": [tensor, 1]})
    assert set_settings(optimizer, kept_of(optimizer_of(extra={"a": [torch.tensor(5.0), 2]}))) is None
    assert optimizer.param_groups[1]["extra"] == {"a": [5.0, 2]}
    assert optimizer.param_groups[1]["extra"]["a"][0] is tensor


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (torch.zeros(2), torch.ones(2)),
        (torch.zeros(2), torch.zeros(2, dtype=torch.int32)),
        (torch.zeros(2), torch.zeros(1, 2)),
        (0.0, torch.tensor(0.0)),
        (torch.tensor(0.0), torch.tensor(0.0, dtype=torch.float64)),
        (sum, max),
        (math.sin, math.cos),
        (torch.float32, torch.bfloat16),
        ((torch.zeros(2), 1), (torch.ones(2), 1)),
        ({"a": torch.zeros(2)}, {"a": torch.ones(2)}),
    ],
    ids=["tensor", "its type", "its shape", "number", "number's type", "builtin", "function", "dtype", "tuple", "dict"],
)
def test_what_cannot_be_put_back_is_told(before: Any, after: Any) -> None:
    kept = kept_of(optimizer_of(extra=after))
    assert set_settings(optimizer_of(extra=after), kept) is None
    assert set_settings(optimizer_of(extra=before), kept) == "extra"


class Changed:
    """Something with values of its own."""

    def __init__(self, value: int) -> None:
        self.value = value

    def method(self) -> int:
        return self.value


@pytest.mark.parametrize(
    "value",
    [lambda x: x, Changed(1), Changed(1).method, {"a": Changed(1)}, (1, [lambda: 2]), {(1, 2): 3}, np.zeros(2)],
    ids=["lambda", "object", "method", "in a dict", "in a list", "keys", "array"],
)
def test_what_cannot_be_recorded_is_told_and_never_counts_as_unchanged(value: Any) -> None:
    optimizer = optimizer_of(extra=value)
    kept = kept_of(optimizer)
    assert unknown_in(kept) == "extra"
    assert set_settings(optimizer, kept) == "extra"

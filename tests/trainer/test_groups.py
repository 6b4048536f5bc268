"""Settings of an optimizer's groups: what a step was taken with is put back, or its change is told."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from trainingkit.trainer.groups import set_settings, settings_of


def optimizer_of(**settings: Any) -> torch.optim.AdamW:
    """Two groups, the second with a learning rate of its own."""
    layers = nn.Linear(2, 2), nn.Linear(2, 2)
    groups: list[dict[str, Any]] = [{"params": list(layer.parameters())} for layer in layers]
    return torch.optim.AdamW([groups[0], {**groups[1], "lr": 1.0, **settings}], lr=0.1)


def test_what_was_changed_is_put_back_in_its_form() -> None:
    optimizer = optimizer_of(scale=torch.tensor(2.0), label="a")
    group = optimizer.param_groups[1]
    group.update(weight_decay=0.5, betas=(0.8, 0.9), label="b")
    group["scale"].fill_(3.0)
    kept = settings_of(optimizer)
    other = optimizer_of(scale=torch.tensor(2.0), label="a")
    tensor = other.param_groups[1]["scale"]
    assert set_settings(other, kept) is None
    assert settings_of(other) == kept
    assert other.param_groups[1]["betas"] == (0.8, 0.9) and other.param_groups[1]["label"] == "b"
    assert other.param_groups[1]["scale"] is tensor and tensor == 3.0
    assert [group["lr"] for group in other.param_groups] == [0.1, 1.0], "rates are recorded for themselves"


@pytest.mark.parametrize(
    ("before", "after"),
    [(torch.zeros(2), torch.ones(2)), (sum, max), ((torch.zeros(2), 1), (torch.ones(2), 1))],
    ids=["tensor", "callable", "tuple"],
)
def test_what_cannot_be_put_back_is_told(before: Any, after: Any) -> None:
    kept = settings_of(optimizer_of(extra=after))
    assert set_settings(optimizer_of(extra=after), kept) is None
    assert set_settings(optimizer_of(extra=before), kept) == "extra"

"""A look at a few elements of the state: it sees what a loop changes, and depends on nothing but values."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from trainingkit.trainer.probe import OPTIMIZER, PARAMETERS, probe


def stepped(seed: int = 0, count: int = 3) -> torch.optim.AdamW:
    """AdamW after one step."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [(96, 64), (7,), (0,)] * count
    parameters = [nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    optimizer = torch.optim.AdamW(parameters)
    optimizer.step()
    return optimizer


def first(optimizer: torch.optim.Optimizer) -> nn.Parameter:
    return optimizer.param_groups[0]["params"][0]


CHANGES: list[tuple[str, Callable[[torch.optim.Optimizer], object]]] = [
    (PARAMETERS, lambda o: first(o).data.clamp_(-1.0, 1.0)),
    (PARAMETERS, lambda o: setattr(first(o), "data", first(o).data + 1e-6)),
    (OPTIMIZER, lambda o: o.state.clear()),
    (OPTIMIZER, lambda o: o.state[first(o)]["exp_avg"].mul_(0.5)),
    (OPTIMIZER, lambda o: o.state[first(o)]["step"].add_(1)),
    (OPTIMIZER, lambda o: o.state[first(o)].pop("exp_avg_sq")),
    (OPTIMIZER, lambda o: o.state[first(o)].update(count=3)),
]


@pytest.mark.parametrize(("part", "change"), CHANGES, ids=range(len(CHANGES)))
def test_a_change_shows_in_its_part_alone(part: str, change: Callable[[torch.optim.Optimizer], object]) -> None:
    optimizer = stepped()
    before = probe(optimizer)
    assert before == probe(stepped()) and before.keys() == {PARAMETERS, OPTIMIZER}
    change(optimizer)
    after = probe(optimizer)
    assert {name for name in before if before[name] != after[name]} == {part}


def test_it_depends_on_values_not_on_where_they_lie() -> None:
    values = torch.randn(4, 3, 5, 5)
    other = values.to(memory_format=torch.channels_last)
    assert not other.is_contiguous()
    wide = torch.stack([values, values])[1]
    found = [probe(torch.optim.SGD([nn.Parameter(each)])) for each in (values, other, wide)]
    assert found[0] == found[1] == found[2]


def test_with_many_tensors_each_still_counts() -> None:
    optimizer = stepped(count=64)
    parameters = optimizer.param_groups[0]["params"]
    before = probe(optimizer)
    parameters[-2].data.mul_(2.0)
    assert probe(optimizer)[PARAMETERS] != before[PARAMETERS]

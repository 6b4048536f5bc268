"""Contract of every schedule and optimizer in the registries, whatever is added to them."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainingkit.optim import OPTIMIZERS, SCHEDULES
from trainingkit.optim.optimizers.adamw import AdamWSection
from trainingkit.optim.schedules.cosine import CosineSection
from trainingkit.trainer.rate import RecipeRate


@pytest.mark.parametrize("name", SCHEDULES.names())
@settings(deadline=None, max_examples=60)
@given(warmup=st.integers(0, 50), total=st.integers(1, 200))
def test_factors_rise_once_and_never_again(name: str, warmup: int, total: int) -> None:
    schedule = SCHEDULES.get(name)(warmup_steps=warmup)
    factors = [schedule.factor(update, total) for update in range(total + 20)]
    assert all(0 < factor <= 1 for factor in factors)
    rising, falling = factors[:warmup], factors[warmup:]
    assert rising == sorted(rising)
    assert falling == sorted(falling, reverse=True)
    if 0 < warmup <= len(factors):
        assert factors[warmup - 1] == 1


@given(st.integers(0, 30), st.integers(31, 300), st.floats(0, 1))
def test_cosine_ends_and_is_halfway_in_the_middle(warmup: int, total: int, final: float) -> None:
    schedule = CosineSection(warmup_steps=warmup, final=final)
    assert schedule.factor(total, total) == pytest.approx(final)
    assert schedule.factor(total + 1000, total) == pytest.approx(final)
    if (total - warmup) % 2 == 0:
        assert schedule.factor((total + warmup) // 2, total) == pytest.approx((1 + final) / 2)


@pytest.mark.parametrize("name", OPTIMIZERS.names())
def test_optimizers_take_every_trainable_parameter_once_and_learn(name: str) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 1))
    model[0].weight.requires_grad_(False)
    optimizer = OPTIMIZERS.get(name)().build(model)
    taken = [p for group in optimizer.param_groups for p in group["params"]]
    assert {id(p) for p in taken} == {id(p) for p in model.parameters() if p.requires_grad}
    assert len(taken) == len({id(p) for p in taken})
    x = torch.randn(64, 4)
    y = x.sum(1, keepdim=True)
    seen = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        seen.append(float(loss.detach()))
    assert seen[-1] < 0.8 * seen[0]


def test_adamw_decays_matrices_only() -> None:
    model = torch.nn.Linear(3, 2)
    groups = AdamWSection(weight_decay=0.5, lr=0.25).build(model).param_groups
    assert [(group["weight_decay"], [p.dim() for p in group["params"]]) for group in groups] == [(0.5, [2]), (0.0, [1])]
    assert {group["lr"] for group in groups} == {0.25}


def test_the_recipe_rate_sets_each_groups_own_peak() -> None:
    parameters = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
    optimizer = torch.optim.SGD(
        [{"params": [p], "lr": lr} for p, lr in zip(parameters, (1.0, 0.1), strict=True)], lr=1.0
    )
    schedule = CosineSection(warmup_steps=2, final=0.0)
    rate = RecipeRate(optimizer, schedule, 10)
    seen = []
    for _ in range(10):
        seen.append([group["lr"] for group in optimizer.param_groups])
        rate.step()
    for update, (first, second) in enumerate(seen):
        assert first == pytest.approx(schedule.factor(update, 10))
        assert second == pytest.approx(0.1 * first)
    state = rate.state_dict()
    fresh = torch.optim.SGD([{"params": [p], "lr": 9.0} for p in parameters], lr=9.0)
    again = RecipeRate(fresh, schedule, 10)
    again.load_state_dict(state)
    assert [g["lr"] for g in fresh.param_groups] == [g["lr"] for g in optimizer.param_groups]
    assert math.isfinite(fresh.param_groups[0]["lr"])

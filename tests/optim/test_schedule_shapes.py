"""Schedules against closed forms and against torch's own schedulers."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.optim.lr_scheduler import ConstantLR, CosineAnnealingLR, LambdaLR, LinearLR, LRScheduler, SequentialLR

from trainingkit.core.errors import ConfigError
from trainingkit.core.section import choose
from trainingkit.optim import SCHEDULES
from trainingkit.optim.schedules.constant import ConstantSection
from trainingkit.optim.schedules.cosine import CosineSection
from trainingkit.optim.schedules.wsd import WSDSection

WARMUPS, STEPS = st.integers(0, 60), st.integers(1, 300)


@settings(deadline=None, max_examples=60)
@given(WARMUPS, STEPS, st.floats(0, 1))
def test_cosine_is_its_closed_form(warmup: int, length: int, final: float) -> None:
    """final + (1 - final) cos^2(pi/2 done), the squared half angle."""
    schedule = CosineSection(warmup_steps=warmup, final=final)
    for step in range(length):
        expected = final + (1 - final) * math.cos(math.pi / 2 * step / length) ** 2
        assert schedule.factor(warmup + step, warmup + length) == pytest.approx(expected, abs=1e-12)


@settings(deadline=None, max_examples=60)
@given(WARMUPS, st.integers(0, 100), st.integers(1, 100), st.floats(0, 1), st.sampled_from(["sqrt", "linear"]))
def test_wsd_is_its_closed_form(warmup: int, stable: int, decay: int, final: float, shape: str) -> None:
    """Phase by phase, with lengths in updates."""
    total = warmup + stable + decay
    schedule = WSDSection(warmup_steps=warmup, decay_share=decay / total, decay=shape, final=final)  # type: ignore[arg-type]
    power = {"sqrt": 0.5, "linear": 1.0}[shape]
    expected = [(1 + step) / warmup for step in range(warmup)] + [1.0] * stable
    expected += [1 - (1 - final) * (step / decay) ** power for step in range(decay)] + [final] * 10
    found = [schedule.factor(update, total) for update in range(total + 10)]
    assert found == pytest.approx(expected, abs=1e-12)


@settings(deadline=None, max_examples=60)
@given(WARMUPS, STEPS, st.integers(1, 200), st.floats(0, 0.9))
def test_a_longer_wsd_is_the_same_until_the_shorter_decays(warmup: int, total: int, more: int, share: float) -> None:
    schedule = WSDSection(warmup_steps=warmup, decay_share=share)
    begin = max(warmup, total - round(share * total))
    assume(total + more - round(share * (total + more)) >= begin)
    for update in range(begin + 1):
        assert schedule.factor(update, total) == schedule.factor(update, total + more)


def by_torch(
    parts: list[LRScheduler], milestones: list[int], optimizer: torch.optim.Optimizer, count: int
) -> list[float]:
    """The factors that a chain of torch's schedulers gives to a peak rate of 1."""
    chain = SequentialLR(optimizer, parts, milestones)
    seen = []
    for _ in range(count):
        seen.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The epoch parameter", UserWarning)  # torch warns of its own call
            chain.step()
    return seen


def sgd() -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)


def warm(optimizer: torch.optim.Optimizer, warmup: int) -> LinearLR:
    return LinearLR(optimizer, start_factor=1 / warmup, end_factor=1.0, total_iters=warmup - 1)


@pytest.mark.parametrize(("warmup", "total"), [(2, 10), (20, 100), (5, 6)])
def test_schedules_are_torchs(warmup: int, total: int) -> None:
    updates = range(total)
    optimizer = sgd()
    cosine = CosineAnnealingLR(optimizer, T_max=total - warmup, eta_min=0.1)
    expected = by_torch([warm(optimizer, warmup), cosine], [warmup], optimizer, total)
    assert [CosineSection(warmup_steps=warmup).factor(u, total) for u in updates] == pytest.approx(expected)

    optimizer = sgd()
    flat = ConstantLR(optimizer, factor=1.0)
    expected = by_torch([warm(optimizer, warmup), flat], [warmup], optimizer, total)
    assert [ConstantSection(warmup_steps=warmup).factor(u, total) for u in updates] == pytest.approx(expected)

    optimizer = sgd()
    decay = max(1, round(0.2 * total))
    line = LambdaLR(optimizer, lambda step: 1 - 0.9 * min(1.0, step / decay))
    flat = ConstantLR(optimizer, factor=1.0)
    milestones = [warmup, total - decay]
    expected = by_torch([warm(optimizer, warmup), flat, line], milestones, optimizer, total)
    wsd = WSDSection(warmup_steps=warmup, decay="linear")
    assert [wsd.factor(u, total) for u in updates] == pytest.approx(expected)


def test_wsd_decays_at_the_end_of_any_run() -> None:
    schedule = WSDSection(warmup_steps=0, decay_share=0.0)
    assert [schedule.factor(update, 4) for update in range(6)] == [1.0] * 5 + [schedule.final]
    short = WSDSection(warmup_steps=8)
    assert [short.factor(update, 4) for update in range(4)] == [0.125, 0.25, 0.375, 0.5]


def test_a_shape_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        choose(SCHEDULES, {"kind": "wsd", "decay": "cosine"}, field="schedule")
    assert "field:     schedule.decay" in str(caught.value)
    assert "expected:  'sqrt' or 'linear'" in str(caught.value)

"""Muon's state: state_dict, snapshots, GradScaler, hooks, copies; resume == continue, bit for bit."""

from __future__ import annotations

import copy
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from muon_nets import HIDDEN, bits, channels_last, loss_of, make, muon, put_gradients, state_bits
from torch import nn

import trainingkit as tk
from trainingkit.optim import SCHEDULES
from trainingkit.optim.muon_adamw import MuonAdamW
from trainingkit.recovery import Snapshots, load_new, newest_good, restore_training, training_tensors
from trainingkit.trainer.rate import RecipeRate


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> str:
    for step in steps:
        put_gradients(model, step)
        for group in optimizer.param_groups:
            group["lr"] *= 0.9
        optimizer.step()
    return state_bits(model, optimizer)


def straight(kind: str) -> str:
    model = make(kind)
    return train(model, muon(model), range(6))


@pytest.mark.parametrize("kind", HIDDEN)
@pytest.mark.parametrize("steps_before", [0, 2])
def test_state_dict_resume_is_continue(kind: str, steps_before: int) -> None:
    model, other = make(kind), make(kind, seed=1)
    optimizer, fresh = muon(model), muon(other, lr=0.9, muon_lr=0.9)
    train(model, optimizer, range(3))
    train(other, fresh, range(10, 10 + steps_before))
    state = copy.deepcopy(optimizer.state_dict())
    train(model, optimizer, range(50, 52))
    other.load_state_dict(_after_three(kind))
    fresh.load_state_dict(state)
    assert train(other, fresh, range(3, 6)) == straight(kind)


def _after_three(kind: str) -> dict[str, Any]:
    model = make(kind)
    train(model, muon(model), range(3))
    return model.state_dict()


@pytest.mark.parametrize("kind", HIDDEN)
@pytest.mark.parametrize("last", [False, True])
def test_snapshot_resume_is_continue(tmp_path: Path, kind: str, last: bool) -> None:
    """By parameter name, through the files of a real snapshot; also with convolutions that lie channels last."""

    def build(seed: int) -> tuple[nn.Module, MuonAdamW]:
        model = make(kind, seed)
        model = channels_last(model) if last else model
        return model, muon(model)

    whole, first, second = build(0), build(0), build(1)
    train(*whole, range(6))
    train(*first, range(3))
    with Snapshots(tmp_path, keep=1) as snapshots:
        tensors, rest = training_tensors(*first)
        snapshots.save(3, tensors, rest, wait=True)
    train(*second, range(70, 71))
    found, _ = newest_good(tmp_path)
    assert found is not None
    restore_training(*second, *load_new(found.path))
    assert state_bits(*second) == state_bits(*first)
    assert [dict(g, params=0) for g in second[1].param_groups] == [dict(g, params=0) for g in first[1].param_groups]
    assert train(*second, range(3, 6)) == state_bits(*whole)


def test_names_in_a_snapshot() -> None:
    model = make("words")
    optimizer = muon(model)
    train(model, optimizer, range(1))
    tensors, rest = training_tensors(model, optimizer)
    assert {name for name in tensors if name.startswith("optim/up.")} == {
        "optim/up.weight/momentum_buffer",
        "optim/up.bias/step",
        "optim/up.bias/exp_avg",
        "optim/up.bias/exp_avg_sq",
    }
    assert [group["algorithm"] for group in rest["optimizer"]["groups"]] == ["muon", "adamw", "adamw"]


def test_a_copied_optimizer_steps_alike() -> None:
    model = make("words")
    optimizer = muon(model)
    train(model, optimizer, range(2))
    other, stepped = copy.deepcopy((model, optimizer))
    assert train(other, stepped, range(2, 5)) == train(model, optimizer, range(2, 5))


def test_hooks_are_called_once_a_step() -> None:
    model = make("words")
    optimizer = muon(model)
    calls: list[Any] = []
    optimizer.register_step_pre_hook(lambda *args: calls.append(("pre", args[0])))
    handle = optimizer.register_step_post_hook(lambda *args: calls.append(("post", args[0])))
    put_gradients(model, 0)
    optimizer.step()
    assert calls == [("pre", optimizer), ("post", optimizer)]
    handle.remove()
    optimizer.step()
    assert len(calls) == 3


@pytest.mark.parametrize("scale", [1024.0, 2.0**-7])
def test_a_grad_scaler_changes_no_bit(scale: float) -> None:
    """The scale is a power of two, so that it comes out of fp32 gradients exactly."""
    model, twin = make("words"), make("words")
    optimizer, plain = muon(model), muon(twin)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=2)
    for step in range(5):
        optimizer.zero_grad()
        scaler.scale(loss_of(model, step)).backward()
        scaler.step(optimizer)
        scaler.update()
        put_gradients(twin, step)
        plain.step()
        assert state_bits(model, optimizer) == state_bits(twin, plain)
    assert scaler.get_scale() == 4 * scale


@pytest.mark.parametrize("name", ["up.weight", "head.bias"])
def test_a_grad_scaler_skips_a_step_that_overflowed(name: str) -> None:
    """Also when only Muon's, or only AdamW's gradient is not finite, the other half stays as it was, too."""
    model = make("words")
    optimizer = muon(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    train(model, optimizer, range(2))
    before = state_bits(model, optimizer)
    put_gradients(model, 2, scale=8.0)
    assert float(scaler.scale(torch.ones(()))) == 8.0
    gradient = model.get_parameter(name).grad
    assert gradient is not None
    gradient.view(-1)[0] = float("inf")
    scaler.step(optimizer)
    scaler.update()
    assert state_bits(model, optimizer) == before
    assert scaler.get_scale() == 4.0


def in_a_kit(folder: Path, stop_at: int | None = None) -> tuple[str, int]:
    """Six steps by `attach`, with warm-up, stable phase and decay; stopped by SIGTERM in step `stop_at`."""
    torch.manual_seed(0)
    model = make("words")
    optimizer = muon(model)
    rate = RecipeRate(optimizer, SCHEDULES.get("wsd")(warmup_steps=2), 6)
    settings = {"run": {"folder": str(folder), "steps": 6, "threads": 1, "device": "cpu"}, "snapshot": {"every": 0}}
    batches = list(range(20))
    with tk.attach(model, optimizer, settings, scheduler=rate) as kit:
        for batch in kit.batches(batches):
            if kit.step_number + 1 == stop_at:
                os.kill(os.getpid(), signal.SIGTERM)
            kit.step(loss_of, batch)
    return state_bits(model, optimizer), kit.step_number


def test_a_stopped_and_resumed_run_is_the_undisturbed_one(tmp_path: Path) -> None:
    expected = in_a_kit(tmp_path / "straight")
    assert expected[1] == 6
    assert in_a_kit(tmp_path / "stopped", stop_at=4)[1] == 4
    assert in_a_kit(tmp_path / "stopped") == expected


def test_the_comparison_sees_one_bit() -> None:
    model = make("words")
    before = bits(model)
    with torch.no_grad():
        weight = model.get_parameter("up.weight")
        weight[0, 0] = torch.nextafter(weight[0, 0], torch.tensor(9.0))
    assert bits(model) != before

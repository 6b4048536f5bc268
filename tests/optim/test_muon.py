"""Muon with AdamW is torch's Muon and torch's AdamW, bit for bit, over the right parameters."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from muon_nets import HIDDEN, ByHand, Words, bits, channels_last, loss_of, make, muon, put_gradients
from torch import nn

from ranks import Context, Pool
from trainingkit.core.errors import ConfigError
from trainingkit.core.section import check
from trainingkit.optim import OPTIMIZERS, ScheduleSection
from trainingkit.optim.hidden import hidden_matrices
from trainingkit.optim.optimizers.muon import MuonSection
from trainingkit.trainer.rate import RecipeRate


def names(model: nn.Module, parameters: list[nn.Parameter]) -> list[str]:
    known = {id(parameter): name for name, parameter in model.named_parameters()}
    return [known[id(parameter)] for parameter in parameters]


@pytest.mark.parametrize("kind", HIDDEN)
@pytest.mark.parametrize("fused", [True, False, None])
def test_it_is_torchs_two_optimizers_bit_for_bit(kind: str, fused: bool | None) -> None:
    model, twin = make(kind), make(kind)
    optimizer, by_hand = muon(model), ByHand(twin, HIDDEN[kind], fused=fused is True)
    for group in optimizer.param_groups[1:]:
        group["fused"], group["foreach"] = fused is True, None if fused is None else not fused
    seen = set()
    for step in range(5):
        put_gradients(model, step)
        put_gradients(twin, step)
        optimizer.step()
        by_hand.step()
        assert bits(model) == bits(twin)
        seen.add(bits(model))
    assert len(seen) == 5
    named = dict(model.named_parameters())
    momenta = {name: optimizer.state[named[name]]["momentum_buffer"] for name in HIDDEN[kind]}
    assert bits(momenta) == bits(by_hand.momenta())
    assert {key for p in named.values() for key in optimizer.state[p]} == {
        "momentum_buffer",
        "step",
        "exp_avg",
        "exp_avg_sq",
    }


def test_the_memory_format_of_convolutions_changes_nothing() -> None:
    """Where [out, rest] is no view of the weight, Muon steps a copy of it."""
    model, last = make("pixels"), channels_last(make("pixels"))
    pairs = list(zip(model.parameters(), last.parameters(), strict=True))
    optimizers = [muon(model), muon(last)]
    for step in range(3):
        put_gradients(model, step)
        for parameter, other in pairs:
            assert parameter.grad is not None
            other.grad = torch.empty_like(other).copy_(parameter.grad)
        for optimizer in optimizers:
            optimizer.step()
        assert bits(model) == bits(last)
    assert not last.get_parameter("second.weight").is_contiguous()


@pytest.mark.parametrize("kind", HIDDEN)
def test_hidden_matrices(kind: str) -> None:
    model = make(kind)
    assert names(model, hidden_matrices(model)) == HIDDEN[kind]
    groups = muon(model, lr=0.5, muon_lr=0.25, weight_decay=0.125).param_groups
    assert [(g["algorithm"], g["lr"], g["weight_decay"]) for g in groups] == [
        ("muon", 0.25, 0.125),
        ("adamw", 0.5, 0.125),
        ("adamw", 0.5, 0.0),
    ]
    assert all(p.dim() >= 2 for p in groups[1]["params"])
    assert all(p.dim() < 2 for p in groups[2]["params"])


def test_what_is_left_to_adamw() -> None:
    model = Words()
    model.head.weight = model.embed.weight
    model.register_parameter("positions", nn.Parameter(torch.zeros(1, 7, 8)))
    model.register_parameter("row", nn.Parameter(torch.zeros(1, 8)))
    model.add_module("turned", nn.ConvTranspose1d(4, 3, 2))
    model.down.weight.requires_grad_(False)
    model.add_module("inside", nn.Conv1d(4, 3, 2))
    assert names(model, hidden_matrices(model)) == ["up.weight", "inside.weight"], "with an embedding, no input filters"


def test_the_head_that_a_model_names_is_its_head() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 5))
    assert names(model, hidden_matrices(model)) == ["0.weight"]
    model.get_output_embeddings = lambda: model[0]  # type: ignore[assignment]
    assert names(model, hidden_matrices(model)) == ["1.weight"]


def test_the_decoder_of_the_default_recipe() -> None:
    from trainingkit.trainer.recipe import load_recipe

    recipe = load_recipe("default", ["optimizer.kind=muon", "model.layers=2"])
    model = recipe.model_section().build(recipe.data_section().open().info)
    optimizer = recipe.optimizer_section().build(model)
    taken = names(model, optimizer.param_groups[0]["params"])
    assert taken == [name for name, p in model.named_parameters() if ".layers." in name and p.dim() == 2]
    assert len(taken) == 14
    rest = names(model, optimizer.param_groups[1]["params"])
    assert rest == ["model.embed_tokens.weight", "lm_head.weight"]


def test_a_model_without_hidden_matrices_is_adamws(caplog: pytest.LogCaptureFixture) -> None:
    model, twin = nn.Linear(3, 2), nn.Linear(3, 2)
    twin.load_state_dict(model.state_dict())
    pair = [(model, muon(model)), (twin, OPTIMIZERS.get("adamw")().build(twin))]
    assert "no hidden matrix, so AdamW steps all of it" in caplog.text
    for net, optimizer in pair:
        net(torch.ones(1, 3)).sum().backward()
        optimizer.step()
    assert bits(model) == bits(twin)


def test_a_parameter_without_a_gradient_stays_and_gets_no_state() -> None:
    model = make("words")
    optimizer = muon(model)
    put_gradients(model, 0)
    still = [model.get_parameter(name) for name in ("up.weight", "head.bias")]
    before = [parameter.detach().clone() for parameter in still]
    for parameter in still:
        parameter.grad = None
    optimizer.step()
    for parameter, old in zip(still, before, strict=True):
        assert parameter.equal(old)
        assert parameter not in optimizer.state
    optimizer.zero_grad()
    optimizer.step()
    assert len(optimizer.state) == len(list(model.parameters())) - 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("momentum", 0.5),
        ("nesterov", False),
        ("ns_steps", 2),
        ("adjust_lr_fn", "match_rms_adamw"),
        ("muon_lr", 0.1),
    ],
)
def test_each_setting_reaches_torchs_muon(name: str, value: Any) -> None:
    model, twin = make("words"), make("words")
    optimizer = muon(model, **{name: value})
    by_hand = ByHand(twin, HIDDEN["words"])
    by_hand.muon.param_groups[0]["lr" if name == "muon_lr" else name] = value
    plain = make("words")
    standard = muon(plain)
    for step, (net, stepped) in itertools.product(range(2), ((model, optimizer), (twin, by_hand), (plain, standard))):
        put_gradients(net, step)
        stepped.step()
    parts = [bits({n: net.get_parameter(n) for n in HIDDEN["words"]}) for net in (model, twin, plain)]
    assert parts[0] == parts[1] != parts[2]


def test_the_decay_is_both_parts_but_not_the_vectors() -> None:
    model, twin = make("words"), make("words")
    optimizer, by_hand = muon(model, weight_decay=0.5), ByHand(twin, HIDDEN["words"])
    for group in (by_hand.muon.param_groups[0], by_hand.adamw.param_groups[0]):
        group["weight_decay"] = 0.5
    for net, stepped in ((model, optimizer), (twin, by_hand)):
        put_gradients(net, 0)
        stepped.step()
    assert bits(model) == bits(twin)


@pytest.mark.parametrize(("name", "value"), [("beta1", 0.5), ("beta2", 0.5), ("eps", 1.0), ("lr", 0.5)])
def test_each_setting_reaches_adamw(name: str, value: float) -> None:
    groups = muon(make("words"), **{name: value}).param_groups
    key = {"beta1": "betas", "beta2": "betas"}.get(name, name)
    expected = {"beta1": (0.5, 0.95), "beta2": (0.9, 0.5)}.get(name, value)
    assert [group[key] for group in groups[1:]] == [expected] * 2
    assert groups[0].get(key) != expected


def test_a_schedule_keeps_the_ratio_of_the_two_rates() -> None:
    optimizer = muon(make("words"), lr=0.004, muon_lr=0.02)
    rate = RecipeRate(optimizer, _Halving(), 3)
    for update in range(3):
        assert [group["lr"] for group in optimizer.param_groups] == [f / 2**update for f in (0.02, 0.004, 0.004)]
        rate.step()


class _Halving(ScheduleSection):
    def factor(self, update: int, total: int) -> float:
        return 0.5**update


def test_a_closure_is_evaluated_with_gradients() -> None:
    model, twin = make("words"), make("words")
    first, second = muon(model), muon(twin)

    def closure() -> torch.Tensor:
        model.zero_grad()
        loss = loss_of(model, 0)
        loss.backward()
        return loss

    put_gradients(twin, 0)
    assert first.step(closure).equal(loss_of(twin, 0))
    second.step()
    assert bits(model) == bits(twin)


def test_an_added_group_is_completed_by_torchs_defaults() -> None:
    optimizer = muon(make("words"))
    added = nn.Parameter(torch.zeros(2, 2))
    optimizer.add_param_group({"params": [added], "algorithm": "muon", "lr": 0.5})
    group = optimizer.param_groups[-1]
    assert (group["lr"], group["momentum"], group["ns_steps"]) == (0.5, 0.95, 5)
    added.grad = torch.eye(2)
    optimizer.step()
    assert added.any()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"ns_steps": 100}, "less than 100"),
        ({"momentum": 1.0}, "less than 1"),
        ({"adjust_lr_fn": "moonshot"}, "'original' or 'match_rms_adamw'"),
        ({"muon_rl": 0.1}, "'muon_lr'"),
    ],
)
def test_settings_that_cannot_be_used(settings: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(MuonSection, settings, field="optimizer")
    assert expected in str(caught.value)


def refused_with_shards(context: Context) -> str:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import Shard, distribute_tensor

    model = make("words")
    mesh = DeviceMesh("cpu", list(range(context.world_size)))
    model.get_submodule("up").weight = nn.Parameter(
        distribute_tensor(model.get_parameter("up.weight").detach(), mesh, [Shard(0)])
    )
    with pytest.raises(ConfigError) as caught:
        muon(model)
    return str(caught.value)


def test_sharded_matrices_are_refused(pool: Pool) -> None:
    first, second = pool.run(refused_with_shards, 2)
    assert first == second
    assert first.startswith("Muon needs whole matrices, and this model's are sharded.")
    assert "field:     optimizer.kind" in first
    assert "next step: Set optimizer.kind = 'adamw', or do not shard the model." in first

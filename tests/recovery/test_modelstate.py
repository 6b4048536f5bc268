"""Resume == continue, bit for bit, for each optimizer; a snapshot that does not fit is refused."""

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ranks import Context, Pool
from trainingkit.core.errors import CheckpointError
from trainingkit.recovery import Snapshots, load_new, newest_good, restore_training, training_tensors


class Net(nn.Module):
    """Tied weights, a frozen parameter, buffers of both kinds, channels-last convolution, extra state."""

    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.embed = nn.Linear(6, 4, bias=False)
        self.head = nn.Linear(6, 4, bias=False)
        self.head.weight = self.embed.weight
        self.conv = nn.Conv2d(3, 6, 2).to(memory_format=torch.channels_last)
        self.norm = nn.BatchNorm1d(6)
        self.frozen = nn.Parameter(torch.randn(6), requires_grad=False)
        self.unused = nn.Parameter(torch.randn(2, 2))
        self.register_buffer("scratch", torch.randn(3), persistent=False)
        self.calls = 0

    def get_extra_state(self):
        return {"calls": self.calls}

    def set_extra_state(self, state):
        self.calls = state["calls"]

    def forward(self, x):
        self.calls += 1
        x = self.norm(self.conv(x).mean((2, 3)) + self.frozen)
        return self.embed(x) * self.head(x)


def matrices(net):
    return [p for p in net.parameters() if p.ndim == 2]


def two_groups(net):
    return [
        {"params": [p for p in net.parameters() if p.ndim == 1], "weight_decay": 0.0},
        {"params": [p for p in net.parameters() if p.ndim > 1], "weight_decay": 0.1},
    ]


OPTIMIZERS = {
    "adamw": lambda net: torch.optim.AdamW(two_groups(net), lr=1e-2),
    "adamw fused": lambda net: torch.optim.AdamW(two_groups(net), lr=1e-2, fused=True),
    "adamw amsgrad": lambda net: torch.optim.AdamW(net.parameters(), lr=1e-2, amsgrad=True, foreach=True),
    "tensor rate": lambda net: torch.optim.AdamW(net.parameters(), lr=torch.tensor(1e-2), capturable=False),
    "sgd": lambda net: torch.optim.SGD(net.parameters(), lr=1e-2, momentum=0.9, nesterov=True),
    "plain sgd": lambda net: torch.optim.SGD(net.parameters(), lr=1e-2),
    "muon": lambda net: torch.optim.Muon(matrices(net), lr=1e-2),
    "adafactor": lambda net: torch.optim.Adafactor(two_groups(net), lr=1e-2),
}


def train(net, optimizer, steps):
    for step in steps:
        x = torch.randn(8, 3, 4, 4, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        net(x).square().mean().backward()
        for group in optimizer.param_groups:
            if not isinstance(group["lr"], torch.Tensor):
                group["lr"] *= 0.9
        optimizer.step()


def bits(tensors):
    return {n: (t.dtype, t.detach().contiguous().reshape(-1).view(torch.uint8).tolist()) for n, t in tensors.items()}


def everything(net, optimizer):
    tensors, rest = training_tensors(net, optimizer)
    return bits(tensors), rest


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_resume_is_continue(tmp_path, name):
    build = OPTIMIZERS[name]
    straight = Net(0)
    whole = build(straight)
    train(straight, whole, range(6))

    first = Net(0)
    before = build(first)
    train(first, before, range(3))
    with Snapshots(tmp_path, keep=1) as snapshots:
        tensors, rest = training_tensors(first, before)
        snapshots.save(3, tensors, rest, wait=True)
    second = Net(1)
    after = build(second)
    train(second, after, [77])
    restore_training(second, after, *load_new(newest_good(tmp_path)[0].path))
    assert everything(second, after) == everything(first, before)
    train(second, after, range(3, 6))
    assert everything(second, after) == everything(straight, whole)
    assert second.calls == straight.calls


def test_an_optimizer_that_has_not_stepped(tmp_path):
    net = Net(0)
    optimizer = OPTIMIZERS["adamw"](net)
    tensors, rest = training_tensors(net, optimizer)
    assert not [name for name in tensors if name.startswith("optim/")]
    other = Net(1)
    stepped = OPTIMIZERS["adamw"](other)
    train(other, stepped, [0])
    restore_training(other, stepped, tensors, rest)
    assert len(stepped.state) == 0
    assert everything(other, stepped) == everything(net, optimizer)


def test_names():
    net = Net(0)
    optimizer = OPTIMIZERS["adamw"](net)
    train(net, optimizer, [0])
    tensors, rest = training_tensors(net, optimizer)
    assert "model/embed.weight" in tensors
    assert "model/head.weight" not in tensors, "a tied tensor appears once"
    assert "model/scratch" not in tensors, "not persistent"
    assert "model/norm.running_mean" in tensors
    assert "optim/conv.bias/exp_avg" in tensors
    assert not [name for name in tensors if name.startswith(("optim/frozen", "optim/unused"))]
    assert rest["extra_state"] == {"extra/_extra_state": {"calls": 1}}
    assert "conv.bias" in rest["optimizer"]["groups"][0]["params"]


def test_wide_state_of_narrow_parameters_keeps_its_dtype():
    layer = nn.Linear(3, 3).bfloat16()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
    optimizer.state[layer.weight]["momentum_buffer"] = torch.full((3, 3), 1 / 3)
    tensors, rest = training_tensors(layer, optimizer)
    other = nn.Linear(3, 3).bfloat16()
    fresh = torch.optim.SGD(other.parameters(), lr=0.1, momentum=0.9)
    restore_training(other, fresh, tensors, rest)
    restored = fresh.state[other.weight]["momentum_buffer"]
    assert restored.dtype == torch.float32
    assert restored.equal(torch.full((3, 3), 1 / 3))
    assert restored.data_ptr() != tensors["optim/weight/momentum_buffer"].data_ptr()


def test_compiled_models_have_plain_names():
    layer = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    wrapped = nn.Module()
    wrapped._orig_mod = layer
    assert set(training_tensors(wrapped, optimizer)[0]) == {"model/weight", "model/bias"}


def refused(model, optimizer, tensors, rest):
    before = everything(model, optimizer)
    with pytest.raises(CheckpointError) as caught:
        restore_training(model, optimizer, tensors, rest)
    assert everything(model, optimizer) == before, "nothing has been changed"
    return str(caught.value)


def test_a_snapshot_that_does_not_fit_is_refused_and_changes_nothing():
    def small():
        net = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2))
        return net, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    source, optimizer = small()
    source(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    tensors, rest = training_tensors(source, optimizer)
    missing = {name: tensor for name, tensor in tensors.items() if name != "model/1.bias"}
    assert "missing: model/1.bias" in refused(*small(), missing, rest)
    assert "extra: model/2.bias" in refused(*small(), {**tensors, "model/2.bias": torch.zeros(1)}, rest)
    other_shape = refused(*small(), {**tensors, "model/0.bias": torch.zeros(4)}, rest)
    assert "model/0.bias" in other_shape
    assert "[4] float32" in other_shape
    assert "extra: 9.x" in refused(*small(), {**tensors, "optim/9.x/momentum_buffer": torch.zeros(1)}, rest)
    net, _ = small()
    split = torch.optim.SGD([{"params": net[0].parameters()}, {"params": net[1].parameters()}], lr=0.1)
    assert "1 groups of [4] parameters" in refused(net, split, tensors, rest)
    part = torch.optim.SGD(net[0].parameters(), lr=0.1)
    assert "extra: 1.bias, 1.weight" in refused(net, part, tensors, rest)


def test_parameters_of_another_model_are_refused():
    net, other = nn.Linear(2, 2), nn.Linear(2, 2)
    with pytest.raises(CheckpointError, match="parameter that the model does not have"):
        training_tensors(net, torch.optim.SGD(other.parameters(), lr=0.1))


def test_unknown_hyperparameters_are_told(caplog):
    net = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    tensors, rest = training_tensors(net, optimizer)
    del rest["optimizer"]["groups"][0]["nesterov"]
    restore_training(net, optimizer, tensors, rest)
    assert "does not know nesterov" in caplog.text


def names_under_ddp(context: Context) -> list[str]:
    layer = nn.Linear(2, 2)
    wrapped = DistributedDataParallel(layer, process_group=context.group)
    return sorted(training_tensors(wrapped, torch.optim.SGD(wrapped.parameters(), lr=0.1))[0])


def test_ddp_does_not_show_in_the_names(pool: Pool):
    assert pool.run(names_under_ddp, 2) == [["model/bias", "model/weight"]] * 2

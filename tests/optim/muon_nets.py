"""Nets for the tests of Muon, gradients for them, and the same update by torch's two optimizers, side by side."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from trainingkit.optim import OPTIMIZERS
from trainingkit.optim.muon_adamw import MuonAdamW


class Words(nn.Module):
    """Embedding, two hidden layers, norm, head: what a language model has."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 48)
        self.up = nn.Linear(48, 96)
        self.norm = nn.LayerNorm(96)
        self.down = nn.Linear(96, 48, bias=False)
        self.head = nn.Linear(48, 11)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.down(torch.tanh(self.norm(self.up(self.embed(x))))))


class Pixels(nn.Module):
    """Three convolutions, the last of them in groups, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.second = nn.Conv2d(16, 32, 3, padding=1)
        self.third = nn.Conv2d(32, 6, 1, groups=2)
        self.head = nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.third(self.second(self.first(x).tanh()).tanh()).mean((2, 3)))


HIDDEN = {"words": ["up.weight", "down.weight"], "pixels": ["second.weight", "third.weight"]}


def make(kind: str, seed: int = 0) -> nn.Module:
    """A net of that kind; the same for the same seed."""
    torch.manual_seed(seed)
    return {"words": Words, "pixels": Pixels}[kind]()


def channels_last(model: nn.Module) -> nn.Module:
    """The model with the weights of its convolutions laid out anew."""
    for parameter in model.parameters():
        if parameter.dim() == 4:
            parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
    return model


def loss_of(model: nn.Module, step: int, rank: int = 0, *, call: nn.Module | None = None) -> Tensor:
    """The loss of batch number `step` of a rank; `call` is what is called instead of the model, around it."""
    generator = torch.Generator().manual_seed(1000 * rank + step)
    if isinstance(model, Pixels):
        x = torch.randn(6, 3, 5, 5, generator=generator)
    else:
        x = torch.randint(11, (6,), generator=generator)
    labels = torch.randint(5, (6,), generator=generator)
    return nn.functional.cross_entropy((call or model)(x), labels)


def put_gradients(model: nn.Module, step: int, scale: float = 1.0) -> None:
    """The gradient of batch number `step`."""
    model.zero_grad()
    (loss_of(model, step) * scale).backward()


def muon(model: nn.Module, **settings: object) -> MuonAdamW:
    """The registry's optimizer over a model."""
    return OPTIMIZERS.get("muon")(**settings).build(model)


class ByHand:
    """torch.optim.Muon over matrices of their own, copied in and out, and torch.optim.AdamW over the rest.

    Args:
        rows: each matrix is several, of so many of its rows.
    """

    def __init__(self, model: nn.Module, hidden: Iterable[str], *, fused: bool = True, rows: int = 10_000) -> None:
        named = dict(model.named_parameters())
        self._shown = [(named.pop(name), name) for name in hidden]
        self._rows = rows
        self._cut = [[nn.Parameter(part.clone()) for part in self._parts(p.detach())] for p, _ in self._shown]
        rest = [
            {"params": [p for p in named.values() if p.dim() >= 2]},
            {"params": [p for p in named.values() if p.dim() < 2], "weight_decay": 0.0},
        ]
        self.muon = torch.optim.Muon(
            [part for parts in self._cut for part in parts], lr=2e-2, momentum=0.95, weight_decay=0.1
        )
        self.adamw = torch.optim.AdamW(rest, lr=3e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, fused=fused)

    def step(self) -> None:
        """Both updates."""
        for (parameter, _), parts in zip(self._shown, self._cut, strict=True):
            assert parameter.grad is not None
            for part, gradient in zip(parts, self._parts(parameter.grad), strict=True):
                part.grad = gradient.clone()
        self.muon.step()
        self.adamw.step()
        with torch.no_grad():
            for (parameter, _), parts in zip(self._shown, self._cut, strict=True):
                parameter.copy_(torch.cat([*parts]).reshape(parameter.shape))

    def momenta(self) -> dict[str, Tensor]:
        """Muon's momentum buffers by name."""
        pairs = zip(self._shown, self._cut, strict=True)
        return {
            name: torch.cat([self.muon.state[part]["momentum_buffer"] for part in parts]) for (_, name), parts in pairs
        }

    def _parts(self, tensor: Tensor) -> tuple[Tensor, ...]:
        return tensor.reshape(tensor.shape[0], -1).split(self._rows)


def bits(tensors: nn.Module | Mapping[str, Tensor]) -> str:
    """A hash over the bits of a model's parameters, or of named tensors, with their shapes."""
    named = dict(tensors.named_parameters()) if isinstance(tensors, nn.Module) else tensors
    found = hashlib.sha256()
    for name in sorted(named):
        tensor = named[name].detach().contiguous()
        found.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode() + tensor.numpy().tobytes())
    return found.hexdigest()


def state_bits(model: nn.Module, optimizer: torch.optim.Optimizer) -> str:
    """A hash over parameters and optimizer state by parameter name."""
    named = {name: p.detach() for name, p in model.named_parameters()}
    for name, parameter in model.named_parameters():
        named |= {f"{name}/{key}": value for key, value in optimizer.state.get(parameter, {}).items()}
    return bits(named)

"""Low rank: a matrix is said as P Q^T, with P [rows, rank] and Q [columns, rank].

PowerSGD (Vogels et al., NeurIPS 2019): one power iteration from the last Q; both factors are averaged, so all workers
agree on the same product, and each keeps what its own matrix had besides it.
ACP-SGD (Zhang et al., 2023): only one of the factors a step, in turn; the other is the last one, orthonormal.
Tensors of more dimensions are taken as [first, rest]. A matrix too small to gain from it is said in bf16.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trainingkit.bench.frontier.coder import Agreed, mean_of
from trainingkit.bench.frontier.coders.floats import Bf16
from trainingkit.bench.frontier.coders.form import Form, Fp32, Key
from trainingkit.bench.frontier.coders.twosided import TwoSided

WORTH = 2
"""The factors must have at most 1/2 of the matrix's values, as in PyTorch's hook."""


class PowerSGD:
    """Both factors each step.

    Args:
        rank: columns of each factor.
        form: of the factors; the averaged ones are said in it again.
    """

    share = 1.0
    """Of both factors, what is sent in a step."""

    def __init__(self, rank: int, form: Form | None = None) -> None:
        self.rank = rank
        self.form = form or Fp32()
        self.last: dict[str, Tensor] = {}
        self.small = TwoSided(Bf16())

    def bits(self, shape: tuple[int, ...]) -> float:
        """Those of the factors sent."""
        rows, columns = _sides(shape)
        if not self._worth(rows, columns):
            return self.small.bits(shape)
        return self.share * (self.form.bits(rows * self.rank) + self.form.bits(columns * self.rank))

    def agree(self, ys: list[Tensor], name: str, step: int) -> Agreed:
        """See `Coder.agree`."""
        rows, columns = _sides(ys[0].shape)
        if not self._worth(rows, columns):
            return self.small.agree(ys, name, step)
        agreed = self._agree([y.reshape(rows, columns) for y in ys], name, step)
        shape = ys[0].shape
        return Agreed(agreed.mean.reshape(shape), [one.reshape(shape) for one in agreed.said])

    def _worth(self, rows: int, columns: int) -> bool:
        return WORTH * self.rank * (rows + columns) <= rows * columns

    def _agree(self, matrices: list[Tensor], name: str, step: int) -> Agreed:
        right = self.last[name] if name in self.last else self._first(matrices[0].shape[1], name)
        left = _orthonormal(self._mean([matrix @ right for matrix in matrices], f"{name}|left", step))
        right = self._mean([matrix.T @ left for matrix in matrices], f"{name}|right", step)
        self.last[name] = right
        product = left @ right.T
        return Agreed(product, [product] * len(matrices))

    def _first(self, columns: int, name: str) -> Tensor:
        return torch.randn(columns, self.rank, generator=Key(name, 0, "all").shared("first factor"))

    def _mean(self, factors: list[Tensor], name: str, step: int) -> Tensor:
        """The mean of factors, coded on the way there and on the way back, column after column."""
        rows = torch.stack([factor.T.flatten() for factor in factors])
        mean = mean_of(list(self.form.said(rows, Key(name, step, "workers"))))
        answer = self.form.said(mean.unsqueeze(0), Key(name, step, "owner"))
        return answer.view(self.rank, -1).T


class AcpSGD(PowerSGD):
    """One factor each step, in turn: half the bytes, one round instead of two."""

    share = 0.5

    def _agree(self, matrices: list[Tensor], name: str, step: int) -> Agreed:
        if name not in self.last:
            self.last[name] = self._first(matrices[0].shape[1 - step % 2], name)
        fixed = _orthonormal(self.last[name])
        turned = [matrix.T if step % 2 else matrix for matrix in matrices]
        moving = self._mean([matrix @ fixed for matrix in turned], name, step)
        self.last[name] = moving
        product = moving @ fixed.T
        product = product.T if step % 2 else product
        return Agreed(product, [product] * len(matrices))


def _sides(shape: tuple[int, ...]) -> tuple[int, int]:
    return shape[0], torch.Size(shape[1:]).numel()


def _orthonormal(columns: Tensor) -> Tensor:
    """An orthonormal basis; of zeros: still a basis."""
    return torch.linalg.qr(columns).Q

"""Divide by what everybody knows before coding: the root of the agreed second moment, which is Adam's denominator.

All workers can compute it from the agreed values, so it costs no bits. What the optimizer will divide by is divided out
before rounding and selecting, so that errors are as even as the optimizer's steps: without it, the small coordinates of
a block drown in the rounding of its large ones, and Adam's second moment with them. Residuals stay in plain units.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trainingkit.bench.frontier.coder import Agreed
from trainingkit.bench.frontier.coders.form import Form, Key
from trainingkit.bench.frontier.coders.twosided import TwoSided

FLOOR = 0.05
"""Of the tensor's mean denominator: the least that is divided by."""


class Normalised(TwoSided):
    """Two-sided, with forms that see y / sqrt(v), v the agreed second moment of the steps before.

    Args:
        form: of the messages and of the answer.
        beta: decay of the second moment.
        decay: what the owner's residual is multiplied by when it is stored.
    """

    def __init__(self, form: Form, *, beta: float = 0.95, decay: float = 1.0) -> None:
        super().__init__(form, decay=decay)
        self.beta = beta
        self.moment: dict[str, Tensor] = {}

    def take_over(self, before: TwoSided) -> None:
        """Also the second moment, where the other coder has one."""
        super().take_over(before)
        if isinstance(before, Normalised):
            self.moment = before.moment

    def agree(self, ys: list[Tensor], name: str, step: int) -> Agreed:
        """See `Coder.agree`."""
        agreed = super().agree(ys, name, step)
        square = agreed.mean.flatten().square()
        self.moment[name] = self.moment[name].lerp(square, 1 - self.beta) if name in self.moment else square
        return agreed

    def _say(self, y: Tensor, key: Key) -> Tensor:
        unit = self._unit(y.shape[1], key.name)
        return self.form.said(y / unit, key) * unit

    def _unit(self, n: int, name: str) -> Tensor:
        """[n] fp32, above zero; ones before anything was agreed."""
        if name not in self.moment:
            return torch.ones(n)
        root = self.moment[name].sqrt()
        floor = FLOOR * root.mean()
        return root.clamp_min(floor) if floor > 0 else torch.ones(n)

"""The exchange with an owner: messages are decoded and averaged, and the mean is coded again for everybody.

What `trainingkit.exchange.kinds.sharded` does between ranks. The owner keeps what its answer leaves out, and adds it to
its next mean (Tang et al., "1-bit Adam", ICML 2021, compressed all-reduce with residuals on both sides).
"""

from __future__ import annotations

import torch
from torch import Tensor

from trainingkit.bench.frontier.coder import Agreed, mean_of
from trainingkit.bench.frontier.coders.form import Form, Key


class TwoSided:
    """Both ways in the same form.

    Args:
        form: of the messages and of the answer.
        decay: what the owner's residual is multiplied by when it is stored.
    """

    def __init__(self, form: Form, *, decay: float = 1.0) -> None:
        self.form = form
        self.decay = decay
        self.owed: dict[str, Tensor] = {}

    def take_over(self, before: TwoSided) -> None:
        """Go on where another coder stops: what its owner still owes is owed by this one's."""
        self.owed = before.owed

    def bits(self, shape: tuple[int, ...]) -> float:
        """The form's."""
        return self.form.bits(torch.Size(shape).numel())

    def agree(self, ys: list[Tensor], name: str, step: int) -> Agreed:
        """See `Coder.agree`."""
        said = self._say(torch.stack([y.flatten() for y in ys]), Key(name, step, "workers"))
        mean = self._answer(mean_of(list(said)), name, step)
        shape = ys[0].shape
        return Agreed(mean.view(shape), [one.view(shape) for one in said])

    def _say(self, y: Tensor, key: Key) -> Tensor:
        """What messages decode to, [m, n] fp32."""
        return self.form.said(y, key)

    def _answer(self, mean: Tensor, name: str, step: int) -> Tensor:
        """The mean as everybody gets it, [n] fp32."""
        wanted = mean + self.owed[name] if name in self.owed else mean
        answer = self._say(wanted.unsqueeze(0), Key(name, step, "owner")).squeeze(0)
        self.owed[name] = self.decay * (wanted - answer)
        return answer

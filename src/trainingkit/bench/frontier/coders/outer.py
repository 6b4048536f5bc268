"""An outer optimizer on the agreed update: SGD with Nesterov momentum (DiLoCo, Douillard et al., 2023)."""

from __future__ import annotations

from torch import Tensor

from trainingkit.bench.frontier.coder import Agreed, Coder


class Outer:
    """Another coder, whose mean takes an outer step: m <- momentum m + u; what is applied is rate (u + momentum m).

    Args:
        coder: agrees on the update u.
        rate: the outer learning rate; with no momentum, 1 applies the mean itself.
        momentum: of the outer step.
    """

    def __init__(self, coder: Coder, rate: float, momentum: float = 0.0) -> None:
        self.coder = coder
        self.rate = rate
        self.momentum = momentum
        self.velocity: dict[str, Tensor] = {}

    def bits(self, shape: tuple[int, ...]) -> float:
        """The inner coder's."""
        return self.coder.bits(shape)

    def agree(self, ys: list[Tensor], name: str, step: int) -> Agreed:
        """See `Coder.agree`."""
        inner = self.coder.agree(ys, name, step)
        if not self.momentum:
            return Agreed(self.rate * inner.mean, inner.said)
        before = self.velocity[name] if name in self.velocity else inner.mean.new_zeros(inner.mean.shape)
        velocity = self.momentum * before + inner.mean
        self.velocity[name] = velocity
        return Agreed(self.rate * (inner.mean + self.momentum * velocity), inner.said)

"""The exchange of all simulated workers: residuals and momenta in, one mean out, bits counted.

Faithful to the real one: tensors that `trainingkit.sync.exempt` exempts travel in bf16 with a residual, the others
through the scheme's coder, with the scheme's decay and residual format, which are for them alone. A run whose coder is
`Exact` sends everything exactly. Costs one residual per worker and parameter, and one momentum where the scheme
corrects it.

Momentum correction is that of Lin et al., "Deep Gradient Compression", ICLR 2018: u = m u + g is what a worker adds
to its residual, and u is cleared where the message said something.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from trainingkit.bench.frontier.coder import Agreed, Coder, Exact, mean_of
from trainingkit.bench.frontier.coders.form import as_bf16
from trainingkit.bench.frontier.coders.twosided import TwoSided
from trainingkit.bench.frontier.residual import narrowed
from trainingkit.bench.frontier.scheme import Scheme

BF16_BITS = 16

Named = dict[str, Tensor]


class ExemptCoder:
    """How exempt tensors travel: in bf16, the mean rounded again by its owner, who keeps what that loses."""

    def __init__(self) -> None:
        self._answers: Named = {}

    def bits(self, shape: tuple[int, ...]) -> float:
        """16 a value."""
        return float(BF16_BITS * math.prod(shape))

    def agree(self, ys: list[Tensor], name: str, step: int) -> Agreed:
        """See `Coder.agree`."""
        said = [as_bf16(y) for y in ys]
        owed = mean_of(said)
        owed = owed + self._answers[name] if name in self._answers else owed
        mean = as_bf16(owed)
        self._answers[name] = owed - mean
        return Agreed(mean, said)


class Wire:
    """All workers' ends of the exchange.

    Args:
        shapes: of every trainable parameter, by name.
        carried: names that the scheme's coder carries; the others are exempt.
        steps: length of the run, for warm-up shares.

    Attributes:
        residuals: per worker, name -> [*shape] fp32, what it still has to say.
        bits, carried_bits: of one worker's messages so far, one way; of all tensors, and of the carried ones.
    """

    def __init__(
        self, shapes: Mapping[str, torch.Size], carried: set[str], scheme: Scheme, *, workers: int, steps: int
    ) -> None:
        self._shapes = shapes
        self._carried = carried
        self._scheme = scheme
        self._stages = [(share * steps, make()) for share, make in scheme.warmup] + [(math.inf, scheme.coder())]
        self._coder = self._stages[0][1]
        self.residuals: list[Named] = [_zeros(shapes) for _ in range(workers)]
        momenta = carried if scheme.momentum_correction else set()
        self._momenta: list[Named] = [_zeros({n: shapes[n] for n in sorted(momenta)}) for _ in range(workers)]
        self._exempt_coder = ExemptCoder()
        self._rounds = 0
        self.bits = 0.0
        self.carried_bits = 0.0

    def agree(self, step: int, own: Sequence[Named]) -> Named:
        """One exchange of all tensors.

        Args:
            step: 0-based step of the run, which chooses the warm-up's coder.
            own: per worker, name -> [*shape] fp32 gradient or update.

        Returns:
            name -> [*shape] fp32, what every worker gets.
        """
        self._enter(next(coder for until, coder in self._stages if step < until))
        means = {name: self._one(name, self._coder, [values[name] for values in own]) for name in self._shapes}
        self._rounds += 1
        return means

    def _enter(self, coder: Coder) -> None:
        """Use that coder from now on. One that follows another goes on with what the other's owner owes."""
        before, self._coder = self._coder, coder
        if coder is before or isinstance(before, Exact):
            return
        assert isinstance(before, TwoSided) and isinstance(coder, TwoSided), "a warm-up loses what nobody takes over"
        coder.take_over(before)

    def _one(self, name: str, coder: Coder, values: list[Tensor]) -> Tensor:
        is_carried = name in self._carried
        chosen: Coder = coder if is_carried or isinstance(coder, Exact) else self._exempt_coder
        ys = [self._owed(worker, name, value) for worker, value in enumerate(values)]
        agreed = chosen.agree(ys, name, self._rounds)
        for worker, (y, said) in enumerate(zip(ys, agreed.said, strict=True)):
            self._settle(worker, name, y, said)
        bits = chosen.bits(tuple(self._shapes[name]))
        self.bits += bits
        self.carried_bits += bits if is_carried else 0.0
        return agreed.mean

    def _owed(self, worker: int, name: str, value: Tensor) -> Tensor:
        """What the worker has to say: its momentum or value, and what it has not said yet."""
        momentum = self._momenta[worker].get(name)
        if momentum is not None:
            value = momentum.mul_(self._scheme.momentum_correction).add_(value)
        return value + self.residuals[worker][name]

    def _settle(self, worker: int, name: str, y: Tensor, said: Tensor) -> None:
        """Keep what was not said: of a carried tensor as the scheme has it, of an exempt one whole and in fp32."""
        left = y - said
        if name in self._carried:
            left = narrowed(left.mul_(self._scheme.decay), self._scheme.residual)
        self.residuals[worker][name] = left
        momentum = self._momenta[worker].get(name)
        if momentum is not None:
            momentum[said != 0] = 0.0


def _zeros(shapes: Mapping[str, torch.Size]) -> Named:
    return {name: torch.zeros(shape) for name, shape in shapes.items()}

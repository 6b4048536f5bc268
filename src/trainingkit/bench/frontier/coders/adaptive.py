"""Adaptive values (`trainingkit.sync.auto.adaptive`) as a form: each tensor is a bucket, and chooses its own codec.

Errors count in the unit of what the form is given, normalised or not. Stateful, so an instance serves one run. What the
owner says is what all have decoded, and what is looked at.
"""

from __future__ import annotations

from torch import Tensor

from trainingkit.bench.frontier.coders.form import Key
from trainingkit.bench.frontier.coders.package import PackageForm
from trainingkit.codec import message_bytes
from trainingkit.exchange.parts import Piece
from trainingkit.sync.auto.adaptive import Adaptive, Place
from trainingkit.sync.auto.ladder import Rung
from trainingkit.sync.auto.looking import look, sampled
from trainingkit.sync.auto.values import CANDIDATES


class AdaptiveForm:
    """The package's codecs, in no more bytes than one of them takes for all tensors.

    Args:
        base: the codec whose bytes are the budget.
    """

    def __init__(self, base: str) -> None:
        self._rung = Rung(base, normalise=True)
        self._values = Adaptive(active=True)
        self._costs: dict[Place, dict[str, int]] = {}
        self._step = 0
        self._last = base

    def bits(self, n: int) -> float:
        """Of the message that was said last."""
        return PackageForm(self._last).bits(n)

    def said(self, y: Tensor, key: Key) -> Tensor:
        """Encoded and decoded in the tensor's own codec."""
        if key.step != self._step:
            self._values.over(key.step, self._rung, self._rung, self._costs, committed=True)
            self._step = key.step
        n = y.shape[1]
        place = Place(key.name, n)
        self._last = self._values.codec(place, self._rung)
        said = PackageForm(self._last).said(y, key)
        if key.speaker == "owner":
            self._costs[place] = {codec: message_bytes(codec, n) for codec in CANDIDATES}
            if self._values.looks(key.step):
                self._values.look(place, look(sampled([Piece(0, said[0])], n)).as_coded(self._last))
        return said

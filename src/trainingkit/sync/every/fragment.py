"""One fragment: parcels whose rounds start and land together, with this rank's weight in them."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

from trainingkit.sync.every.dealing import cut
from trainingkit.sync.every.parcel import Parcel, Wire
from trainingkit.sync.every.settings import Every


class Fragment:
    """A share of the layers.

    Args:
        named: its parameters by name.
        offset: its rounds start after steps that leave this when they are divided by H.
        parcel_bytes: of fp32, about.

    Attributes:
        tokens: this rank's weight since the last round began.
        since: steps since then; where that round was given up, since the one before.
        flying: whether a round was started and is not applied.
        weight: this rank's in the round that flies.
    """

    def __init__(
        self, named: Mapping[str, nn.Parameter], every: Every, wire: Wire | None, *, offset: int, parcel_bytes: int
    ) -> None:
        sizes = {name: parameter.numel() for name, parameter in named.items()}
        self._every = every
        self.offset = offset
        self.names = list(named)
        self.tokens = 0.0
        self.since = 0
        self.flying = False
        self.weight = 0.0
        self._launched_since = 0
        self._comes_back = 0.0
        self._landed = False
        self.parcels = [
            Parcel({name: named[name] for name in names}, every, wire, lambda: self.weight)
            for names in cut(self.names, sizes, parcel_bytes)
        ]

    def parameters(self) -> list[nn.Parameter]:
        """All of them."""
        return [parameter for parcel in self.parcels for parameter in parcel.named.values()]

    def count(self, tokens: float) -> None:
        """A step is over."""
        self.tokens += tokens
        self.since += 1

    def starts_after(self, steps: int) -> bool:
        """Whether a round starts when so many steps are over."""
        return steps % self._every.steps == self.offset and self.since > 0

    @property
    def lands_now(self) -> bool:
        """Whether the round that flies is to be applied now."""
        return self.flying and self.since >= self._every.lag

    def launch(self) -> bool:
        """Start a round.

        Returns:
            False where this rank's difference was not finite: then it has no weight, and the rank is healed.
        """
        assert not self.flying
        measured = [parcel.measure() for parcel in self.parcels]
        sound = all(measured)
        if not sound:
            self.heal()
            for parcel in self.parcels:
                parcel.delta.zero_()
        self.weight = self._comes_back = self.tokens
        self.tokens = 0.0
        self._launched_since, self.since = self.since, 0
        self.flying, self._landed = True, False
        for parcel in self.parcels:
            parcel.launch()
        return sound

    def land(self) -> bool:
        """Wait for the round that flies; what it left is owed from now on. Safe to call twice.

        Returns:
            Whether it counts. If not (a sum was not finite on some rank), nothing has changed anywhere, and what was to
            be sent, with its steps, is part of the next round's difference.
        """
        if not self.flying or self._landed:
            return self.flying
        landed = [parcel.land() for parcel in self.parcels]
        if not all(landed):
            self.flying, self.tokens = False, self.tokens + self._comes_back
            self.since += self._launched_since
            return False
        for parcel in self.parcels:
            parcel.settle_residuals()
        self._landed = True
        return True

    def apply(self) -> None:
        """Use the round that has landed."""
        assert self._landed
        for parcel in self.parcels:
            parcel.apply()
        self.flying = self._landed = False

    def heal(self) -> None:
        """Go on from the agreed model; what this rank did since the last round does not count.

        Nor does what a round that flies carries of this rank, should that one be given up.
        """
        for parcel in self.parcels:
            parcel.heal()
        self.tokens = self._comes_back = 0.0

    def restore(self, *, tokens: float, since: int, flying: bool, weight: float) -> None:
        """Continue there; a round that flies has landed."""
        self.tokens, self.since, self.weight = tokens, since, weight
        self.flying = self._landed = flying
        self._comes_back = 0.0

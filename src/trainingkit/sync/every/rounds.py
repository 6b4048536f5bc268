"""Rounds come and go: which start and land after a step, and what becomes of those that cannot be sent or counted.

A round is applied after a number of steps that the settings fix, never when it happens to be there, so a run is the
same whatever the wire does. What holds a non-finite number is never sent: that rank goes on from the agreed model. A
round whose sum is not finite is given up on all ranks, and what it was to carry is part of the next one.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn
from torch.optim import Optimizer

from trainingkit.sync.control import peers_watched
from trainingkit.sync.every.covered import refuse_uncovered
from trainingkit.sync.every.fragment import Fragment
from trainingkit.sync.every.healing import all_finite, forget_broken_moments, forget_broken_residuals
from trainingkit.sync.every.landed import Landed, RoundTap
from trainingkit.sync.every.ledger import Ledger
from trainingkit.sync.every.parcel import Parcel

LAST_TRIES = 2
"""Of the round that brings all ranks to one model."""


class Rounds:
    """Starts and lands the rounds of all fragments, on the training thread.

    Args:
        module: the model that `optimizer` trains.
        ledger: is told what was waited for, and what a person should know.

    Attributes:
        started: rounds so far, one for each fragment.
        tap: given each round before it is applied, where somebody keeps them (`sync.every.landed`).
    """

    def __init__(self, fragments: Sequence[Fragment], module: nn.Module, optimizer: Optimizer, ledger: Ledger) -> None:
        self.fragments = tuple(fragments)
        self.started = 0
        self.tap: RoundTap | None = None
        self._module = module
        self._optimizer = optimizer
        self._ledger = ledger

    @property
    def parcels(self) -> list[Parcel]:
        """Of all fragments."""
        return [parcel for fragment in self.fragments for parcel in fragment.parcels]

    def over(self, steps: int, tokens: float) -> None:
        """A step is over: apply rounds that are due, start those that begin here.

        Args:
            steps: how many there were.
            tokens: this rank's weight in it.
        """
        for fragment in self.fragments:
            fragment.count(tokens)
            if fragment.lands_now:
                self._land(fragment)
            if fragment.starts_after(steps):
                self._launch(fragment)
            if fragment.lands_now:
                self._land(fragment)

    def heal_where_broken(self) -> None:
        """Where a parameter of this rank is not finite, its fragment goes on from the agreed model."""
        for fragment in self.fragments:
            if not all_finite(fragment.parameters()):
                fragment.heal()
                self._healed(fragment, fragment.since + 1)

    def rest(self) -> None:
        """Wait for the rounds that fly; they are applied at their own time all the same."""
        for fragment in self.fragments:
            self._wait(fragment)

    def finish(self) -> bool:
        """Land what flies, exchange what was done since, and go on from the agreed model; nothing flies then.

        A round that is given up is made once more. Where that one is given up, too, its steps are lost, and the log
        says so.

        Returns:
            Whether there was anything to do.
        """
        moved = any(fragment.flying or fragment.since > 0 for fragment in self.fragments)
        for fragment in self.fragments:
            self._land(fragment)
            self._launch_last(fragment)
        self.begin_anew()
        for parcel in self.parcels:
            parcel.write(parcel.agreed)
        return moved

    def drop(self) -> None:
        """Forget what was done since the last rounds, the ones that fly, and what is owed."""
        self.rest()
        self._restart()
        for parcel in self.parcels:
            parcel.forget_residuals()

    def begin_at_agreed(self) -> None:
        """Forget what was done since the last rounds, and the ones that fly; the local model is the agreed one."""
        self.rest()
        self._restart()
        for parcel in self.parcels:
            parcel.write(parcel.agreed)

    def begin_anew(self) -> None:
        """Nothing was done since the last round, and none flies."""
        assert not any(fragment.flying for fragment in self.fragments)
        self._restart()

    def read_agreed(self) -> None:
        """The local model is the agreed one."""
        for parcel in self.parcels:
            parcel.read(parcel.agreed)

    def _restart(self) -> None:
        for fragment in self.fragments:
            fragment.restore(tokens=0.0, since=0, flying=False, weight=0.0)

    def _launch_last(self, fragment: Fragment) -> None:
        for _ in range(LAST_TRIES):
            if not fragment.since:
                return
            self._launch(fragment)
            self._land(fragment)
        if fragment.since:
            self._ledger.say(
                f"The last round was given up {LAST_TRIES} times, so the last {fragment.since} steps of all ranks are "
                "not in the model: it is the one of the last round that counted. Their rate may be too high."
            )

    def _launch(self, fragment: Fragment) -> None:
        covered = (parameter for each in self.fragments for parameter in each.parameters())
        refuse_uncovered(self._optimizer, self._module, covered)
        since = fragment.since
        self.started += 1
        if not fragment.launch():
            self._healed(fragment, since)

    def _land(self, fragment: Fragment) -> None:
        """Wait for the round that flies, if one does, and apply it."""
        self._wait(fragment)
        if not fragment.flying:
            return
        if self.tap is not None:
            number = self.fragments.index(fragment)
            self.tap(Landed(number, tuple(parcel.heard for parcel in fragment.parcels)))
        fragment.apply()

    def _wait(self, fragment: Fragment) -> None:
        if not fragment.flying:
            return
        with self._ledger.waiting(), peers_watched():
            counts = fragment.land()
        if not counts:
            self._ledger.say("A round was given up on all ranks: a sum was not finite. It is made again.")
            forget_broken_residuals(carried for parcel in fragment.parcels for carried in parcel.carried)

    def _healed(self, fragment: Fragment, steps: int) -> None:
        forgotten = forget_broken_moments(self._optimizer, fragment.parameters())
        self._ledger.say(
            f"This rank's parameters were not finite: it goes on from the agreed model, and its last {steps} steps do "
            f"not count. The optimizer's state of {forgotten} parameters begins anew."
        )

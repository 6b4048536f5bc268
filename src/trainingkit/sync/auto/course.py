"""From which step on which rung counts, and how a step between two of them travels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainingkit.sync.auto.ladder import START, Rung

LEARN_STEPS = 5
"""A moment needs some agreed gradients before a coarse codec may rely on it: so long it travels in `START`."""


class Course:
    """Moves in order; the rung of a step follows from them alone, so a replay of the moves gives the same bits.

    Args:
        first: the rung of the first step.
    """

    def __init__(self, first: Rung) -> None:
        self._moves: list[tuple[int, Rung]] = [(0, first)]

    def move(self, step: int, rung: Rung) -> None:
        """From the step after `step` others on this rung."""
        self._moves.append((step, rung))

    def at(self, step: int) -> Rung:
        """How the step travels that comes after `step` others."""
        index = self._index(step)
        rung = self._moves[index][1]
        if rung.normalise and step < self._learnt(index):
            return Rung(START, normalise=True)
        return rung

    def learn_steps(self, step: int, rung: Rung) -> int:
        """Steps between a move to this rung after `step` others, and the first that travels as it says."""
        if not rung.normalise:
            return 0
        before = self._moves[-1][1]
        return max(0, self._learnt(len(self._moves) - 1) - step) if before.normalise else LEARN_STEPS

    def state(self) -> list[list[Any]]:
        """JSON: the last move that was not normalised and all after it say everything about the steps to come."""
        plain = [i for i, (_, rung) in enumerate(self._moves) if not rung.normalise]
        begin = min(plain[-1] if plain else 0, len(self._moves) - 1)
        return [[step, rung.codec, rung.normalise, rung.every, rung.tau] for step, rung in self._moves[begin:]]

    def load(self, rows: Sequence[Sequence[Any]], first: Rung) -> None:
        """Take over what `state` said; from an empty one begin anew on `first`."""
        self._moves = [(int(row[0]), _rung(row)) for row in rows]
        self._moves = self._moves or [(0, first)]

    def _index(self, step: int) -> int:
        return max((i for i, (begin, _) in enumerate(self._moves) if begin <= step), default=0)

    def _learnt(self, index: int) -> int:
        """Steps after which the unit is known that normalised moves up to this one share."""
        while index and self._moves[index - 1][1].normalise:
            index -= 1
        return self._moves[index][0] + LEARN_STEPS


def _rung(row: Sequence[Any]) -> Rung:
    """From a row of `state`; older ones know no rung apart."""
    every, tau = row[3:5] or (1, 0)
    return Rung(str(row[1]), bool(row[2]), int(every), int(tau))

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
        index = max((i for i, (begin, _) in enumerate(self._moves) if begin <= step), default=0)
        begin, rung = self._moves[index]
        before = self._moves[index - 1][1] if index else None
        if rung.normalise and (before is None or not before.normalise) and step < begin + LEARN_STEPS:
            return Rung(START, normalise=True)
        return rung

    def learn_steps(self, rung: Rung) -> int:
        """Steps between a move to this rung, from where the course ends now, and the first that travels as it says."""
        return LEARN_STEPS if rung.normalise and not self._moves[-1][1].normalise else 0

    def state(self) -> list[list[Any]]:
        """JSON: the last two moves say all about the steps to come."""
        return [[step, rung.codec, rung.normalise] for step, rung in self._moves[-2:]]

    def load(self, rows: Sequence[Sequence[Any]]) -> None:
        """Take over what `state` said; nothing where it is empty."""
        if rows:
            self._moves = [(int(step), Rung(str(codec), bool(normalise))) for step, codec, normalise in rows]

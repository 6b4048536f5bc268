"""The pilots of `"auto"`: one that lets the controller choose, and one that repeats the moves of an earlier run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from trainingkit.core.logging import LOG
from trainingkit.sync.auto.agree import Agreement
from trainingkit.sync.auto.controller import Controller
from trainingkit.sync.auto.course import Course
from trainingkit.sync.auto.forecast import Link, Load
from trainingkit.sync.auto.ladder import Rung
from trainingkit.sync.auto.moves import Move
from trainingkit.sync.auto.seen import Seen, agreed


class Auto:
    """The controller at the wheel. A step's rows are exchanged behind the next one, so a move follows two steps later.

    Args:
        controller: fed the same on all ranks.
        agreement: exchanges the rows.
        prepare: makes ready what a rung needs (compiled kernels); called on all ranks before its first exchange.

    Attributes:
        moves: of this process, in order, the begin included.
        on_move: told of each move.
        refusal: says why ranks must not train apart; empty where they may. Asked on all ranks before they would begin.
    """

    watches = True

    def __init__(self, controller: Controller, agreement: Agreement, prepare: Callable[[Rung], None]) -> None:
        self.rungs: Sequence[Rung] = controller.ladder
        self.on_move: Callable[[Move], None] = _log
        self.refusal: Callable[[], str] = str
        self._controller = controller
        self._agreement = agreement
        self._prepare = prepare
        self._course = Course(controller.rung)
        self._loads: Sequence[Load] | None = None
        self._unprepared: Rung | None = None
        self.moves = [Move(0, controller.rung, "where every run begins")]
        controller.loads = lambda: self._loads

    def at(self, step: int) -> Rung:
        """By the moves so far. After a move all ranks make its rung ready here, where an exchange begins."""
        if self._unprepared is not None:
            self._prepare(self._unprepared)
            self._unprepared = None
        return self._course.at(step)

    def over(self, step: int, seen: Seen, loads: Sequence[Load] | None) -> None:
        """Hear what all ranks saw of the step before this one, move if that says so, and send what this rank saw.

        Raises:
            RuntimeError: a peer is lost.
        """
        rows = self._agreement.finish()
        self._loads = loads
        move = self._controller.observe(step, agreed(rows)) if rows is not None else None
        if move is not None and move.rung.apart and not self._course.at(step).apart:
            move = self._unless_refused(move)
        self._agreement.start(seen.row())
        if move is None:
            return
        self._controller.wait(self._course.learn_steps(move.step, move.rung))
        self._course.move(move.step, move.rung)
        self._unprepared = move.rung
        self.moves.append(move)
        self.on_move(move)

    def _unless_refused(self, move: Move) -> Move:
        """The move, or the one in its place where ranks must not train apart; then no other leads there."""
        refusal = self.refusal()
        return self._controller.bar_apart(move.step, refusal) if refusal else move

    def seconds_on(self, link: Link) -> list[float] | None:
        """See `Controller.seconds_on`."""
        return self._controller.seconds_on(link)

    def choose(self, times: Sequence[float]) -> int:
        """See `Controller.choose`."""
        return self._controller.choose(times)

    def settled(self, step: int) -> bool:
        """Whether the search is over."""
        return self._controller.settled

    def describe(self) -> dict[str, Any]:
        """The rung now."""
        rung = self._controller.rung
        return {"name": f"auto: {rung}", "normalise": rung.normalise}

    def state_dict(self) -> dict[str, Any]:
        """Where the ladder stands."""
        return {"controller": self._controller.state_dict(), "course": self._course.state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue on that rung; what is on its way of another course is dropped.

        Raises:
            CheckpointError: this version has no such rung.
        """
        self._agreement.finish()
        self._controller.load_state_dict(state.get("controller", {}))
        self._course.load(state.get("course", []), self._controller.rung)
        self._unprepared = self._controller.rung


class Replay:
    """Repeats moves that were written down, to the very bits; it measures nothing.

    Args:
        first: the rung of the first step.
        moves: in order of their steps.
        rungs: all that may occur.
        prepare: as for `Auto`.
    """

    watches = False

    def __init__(
        self, first: Rung, moves: Sequence[Move], rungs: Sequence[Rung], prepare: Callable[[Rung], None]
    ) -> None:
        self.rungs = rungs
        self._moves = list(moves)
        self._prepare = prepare
        self._course = Course(first)
        for move in moves:
            self._course.move(move.step, move.rung)

    def at(self, step: int) -> Rung:
        """By the moves that were written down. Where one begins, all ranks make its rung ready."""
        for move in self._moves:
            if move.step == step:
                self._prepare(move.rung)
        return self._course.at(step)

    def over(self, step: int, seen: Seen, loads: Sequence[Load] | None) -> None:
        """Nothing to learn."""

    def settled(self, step: int) -> bool:
        """After the last move."""
        return step >= max(move.step for move in self._moves)

    def describe(self) -> dict[str, Any]:
        """That it is a replay."""
        return {"name": f"auto, {len(self._moves)} moves repeated", "normalise": False}

    def state_dict(self) -> dict[str, Any]:
        """Nothing beside the number of steps, which the synchroniser keeps."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The moves say all."""


def _log(move: Move) -> None:
    LOG.info("from step %d on %s: %s", move.step + 1, move.rung.told, move.reason)

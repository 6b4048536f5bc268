"""What is chosen in mid-run, in the run's records: a row of decisions, a mark in the page, a line on the screen."""

from __future__ import annotations

from trainingkit.sync.auto.adaptive import Choice
from trainingkit.sync.auto.moves import Move, has_moves, write_choice, write_continued, write_move
from trainingkit.sync.contract import Sync
from trainingkit.sync.listening import exchanges, first_rung, hear_choices, hear_moves
from trainingkit.trainer.recorder import Recorder
from trainingkit.trainer.session import Session


def watch_moves(sync: Sync, session: Session, recorder: Recorder, *, resumed: bool) -> None:
    """From now on write moves down, and where they begin, and what buckets choose; nothing where nobody chooses.

    Args:
        resumed: the run goes on from a snapshot, whose state the synchroniser has by now.
    """
    path = session.run.decisions

    def hear_choice(choice: Choice) -> None:
        if session.place.rank == 0:
            with session.run.written():
                write_choice(path, choice)
        recorder.event(choice.step, "values", f"Buckets travel in numbers of their own: {choice.reason}.")

    hear_choices(sync, hear_choice)
    first = first_rung(sync)
    if first is None:
        return
    if session.place.rank == 0:
        with session.run.written():
            if resumed and has_moves(path):
                write_continued(path, exchanges(sync))
            else:
                write_move(path, Move(exchanges(sync), first, "where the controller begins"))

    def hear(move: Move) -> None:
        if session.place.rank == 0:
            with session.run.written():
                write_move(path, move)
        told = move.rung.told
        recorder.event(move.step, "rung", f"{told[0].upper()}{told[1:]}: {move.reason}.")

    hear_moves(sync, hear)

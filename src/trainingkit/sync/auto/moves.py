"""Moves as rows of `decisions.jsonl`, and back: what was chosen, from which step on, and why."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainingkit.core import decisions
from trainingkit.core.errors import ConfigError
from trainingkit.sync.auto.adaptive import Choice
from trainingkit.sync.auto.ladder import Rung

CHOICE = "rung"
VALUES = "values"
CONTINUED = "rung.continued"
"""A run went on from a snapshot: what was chosen after it did not happen."""


@dataclass(frozen=True)
class Move:
    """A change of rung.

    Args:
        step: exchanges that were made before it; it counts from the next on.
        rung: what is used from there on.
        reason: a sentence that a person can check.
    """

    step: int
    rung: Rung
    reason: str


def write_move(path: Path, move: Move) -> None:
    """Append a move; its step is the number of exchanges before it counts."""
    rung = move.rung
    apart = {"every": rung.every, "tau": rung.tau} if rung.apart else {}
    value = {"codec": rung.codec, "normalise": rung.normalise, **apart}
    decisions.record(path, step=move.step, choice=CHOICE, value=value, reason=move.reason)


def write_choice(path: Path, choice: Choice) -> None:
    """Append in which numbers buckets travel from there on; a replay comes to the same by itself."""
    decisions.record(path, step=choice.step, choice=VALUES, value=choice.codecs, reason=choice.reason)


def write_continued(path: Path, step: int) -> None:
    """Note that the run goes on from a snapshot after `step` exchanges."""
    decisions.record(path, step=step, choice=CONTINUED, value=None, reason="continued from a snapshot")


def has_moves(path: Path) -> bool:
    """Whether a run's controller has written where it begins."""
    return any(row.get("choice") == CHOICE for row in decisions.read(path))


def read_moves(path: Path) -> list[Move]:
    """All moves of a run, in order, without those that a return to a snapshot undid.

    Raises:
        ConfigError: no such file, or no move in it.
    """
    moves: list[Move] = []
    for row in decisions.read(path):
        if row.get("choice") == CONTINUED:
            moves = [move for move in moves if move.step <= row["step"]]
        if row.get("choice") == CHOICE:
            moves.append(_move(row, path))
    if moves:
        return moves
    raise ConfigError(
        "There are no moves to repeat.",
        field="sync.replay",
        found=str(path) if path.exists() else f"{path}, which does not exist",
        expected="the decisions.jsonl of a run with sync.codec = 'auto'",
        next_step="Name that file, or leave sync.replay out.",
    )


def _move(row: dict[str, Any], path: Path) -> Move:
    try:
        value = row["value"]
        every, tau = int(value.get("every", 1)), int(value.get("tau", 0))
        rung = Rung(str(value["codec"]), bool(value["normalise"]), every, tau)
        return Move(int(row["step"]), rung, str(row.get("reason", "")))
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            "A move cannot be read.",
            field="sync.replay",
            found=f"{row} in {path}",
            expected="a step and a value with codec and normalise",
            next_step="Use the file as the run wrote it.",
        ) from error

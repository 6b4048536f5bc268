"""Residuals as state: by parameter name, per rank; and what becomes of them when the number of ranks changes.

    own      name -> [elements] fp32: what this rank's messages still owe of this parameter
    answer   name -> list of (start, [count] fp32): what this rank, as owner, still owes of the agreed mean

A rank's `own` reaches the mean with the factor 1/N, an `answer` with the factor 1. `redistribute` keeps what is
pending in the mean: (1/N) sum over ranks of own, plus the answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypedDict

import torch

from trainingkit.sync.bucketplan import Carried, Run

Pieces = list[tuple[int, torch.Tensor]]


class State(TypedDict):
    """Residuals by parameter name."""

    own: dict[str, torch.Tensor]
    answer: dict[str, Pieces]


def export(carried: Iterable[Carried], rank: int) -> State:
    """Copies of all residuals by name."""
    own: dict[str, torch.Tensor] = {}
    answer: dict[str, Pieces] = {}
    for part in carried:
        for run in part.runs:
            own[run.name] = part.residuals.own[run.in_part : run.in_part + run.elements].clone()
            piece = _answer_piece(part, run, rank)
            if piece is not None:
                start, values = piece
                answer[run.name] = [(start, values.clone())]
    return State(own=own, answer=answer)


def fill(part: Carried, rank: int, state: State) -> None:
    """Put a state's residuals of this part's parameters in place; names it does not hold stay at zero."""
    for run in part.runs:
        if run.name in state["own"]:
            part.residuals.own[run.in_part : run.in_part + run.elements] = state["own"][run.name]
        target = _answer_piece(part, run, rank)
        if target is not None:
            for start, values in state["answer"].get(run.name, ()):
                _overlay(*target, start, values)


def merge(below: State, above: State) -> State:
    """Both states' names; where both have one, `above` counts."""
    return State(own={**below["own"], **above["own"]}, answer={**below["answer"], **above["answer"]})


def redistribute(states: Sequence[State], world_size: int) -> list[State]:
    """States for another number of ranks: every new rank owes the mean of what the old ones owed.

    Args:
        states: of all old ranks, in rank order.

    Returns:
        One state per new rank. Answers cover everything in each; a new owner takes what falls into its shard.
    """
    names = sorted({name for state in states for name in state["own"]})
    mean = {name: _mean([s["own"][name] for s in states if name in s["own"]], len(states)) for name in names}
    answers: dict[str, Pieces] = {}
    for state in states:
        for name, pieces in state["answer"].items():
            answers.setdefault(name, []).extend(pieces)
    return [State(own={n: t.clone() for n, t in mean.items()}, answer=dict(answers)) for _ in range(world_size)]


def _mean(residuals: Sequence[torch.Tensor], ranks: int) -> torch.Tensor:
    """Their sum over `ranks`, taken in float64."""
    total = torch.zeros(residuals[0].numel(), dtype=torch.float64)
    for residual in residuals:
        total += residual
    return (total / ranks).float()


def _answer_piece(part: Carried, run: Run, rank: int) -> tuple[int, torch.Tensor] | None:
    """(start within the parameter, view of the answer residual) of what this rank owns of a run."""
    residual = part.residuals.answer
    if residual is None:
        return None
    first = rank * part.layout.shard
    low = max(run.in_part, first)
    high = min(run.in_part + run.elements, first + part.layout.shard)
    if low >= high:
        return None
    return low - run.in_part, residual[low - first : high - first]


def _overlay(target_start: int, target: torch.Tensor, start: int, values: torch.Tensor) -> None:
    low = max(target_start, start)
    high = min(target_start + target.numel(), start + values.numel())
    if low < high:
        target[low - target_start : high - target_start] = values[low - start : high - start]

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


def fill(part: Carried, rank: int, state: State) -> int:
    """Put a state's residuals of this part's parameters in place; names it does not hold stay at zero.

    Returns:
        How many answers found no place, because this rank does not own their elements any more.
    """
    lost = 0
    for run in part.runs:
        if run.name in state["own"]:
            part.residuals.own[run.in_part : run.in_part + run.elements] = state["own"][run.name]
        target = _answer_piece(part, run, rank)
        for start, values in state["answer"].get(run.name, ()):
            lost += values.numel() - (_overlay(*target, start, values) if target is not None else 0)
    return lost


def merge(below: State, above: State) -> State:
    """Both states' names; where both have one, `above` counts."""
    return State(own={**below["own"], **above["own"]}, answer={**below["answer"], **above["answer"]})


def redistribute(states: Sequence[State], world_size: int) -> list[State]:
    """States for another number of ranks: every new rank owes the mean of what the old ones owed.

    Args:
        states: of all old ranks, in rank order.

    Returns:
        One state per new rank, without answers: what owners still owe of the mean is owed by every new rank.
    """
    mean = {name: values.float() for name, values in pending(states).items()}
    return [State(own={n: t.clone() for n, t in mean.items()}, answer={}) for _ in range(world_size)]


def pending(states: Sequence[State]) -> dict[str, torch.Tensor]:
    """What is still owed of the agreed mean, by name: [elements] float64, (1/N) sum of own, plus the answers."""
    owed: dict[str, torch.Tensor] = {}
    for state in states:
        for name, residual in state["own"].items():
            owed.setdefault(name, torch.zeros(residual.numel(), dtype=torch.float64)).add_(residual)
    for total in owed.values():
        total.div_(len(states))
    for state in states:
        for name, pieces in state["answer"].items():
            for start, values in pieces:
                owed[name][start : start + values.numel()] += values
    return owed


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


def _overlay(target_start: int, target: torch.Tensor, start: int, values: torch.Tensor) -> int:
    """Copy the elements that both have; returns how many."""
    low = max(target_start, start)
    high = min(target_start + target.numel(), start + values.numel())
    if low < high:
        target[low - target_start : high - target_start] = values[low - start : high - start]
    return max(0, high - low)

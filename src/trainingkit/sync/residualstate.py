"""Residuals as state: by parameter name, per rank; and what becomes of them when the number of ranks changes.

    own      name -> [elements] fp32: what this rank's messages still owe of this parameter
    answer   name -> list of (start, [count] fp32): what this rank, as owner, still owes of the agreed mean
    moment   name -> [elements] fp32: the agreed second moment (`sync.moment`), the same on all ranks

The residuals of a name that has a moment are in its unit, so that nothing is rounded on the way; all others are in
gradients' units.

A rank's `own` reaches the mean with the factor 1/N, an `answer` with the factor 1. `redistribute` keeps what is
pending in the mean: (1/N) sum over ranks of own, plus the answers.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, NotRequired, TypedDict

import torch

from trainingkit.core.errors import CheckpointError
from trainingkit.sync.bucketplan import Carried, Run
from trainingkit.sync.moment import unit_of

Pieces = list[tuple[int, torch.Tensor]]


class State(TypedDict):
    """Residuals by parameter name; `moment` is left out where no wire is normalised."""

    own: dict[str, torch.Tensor]
    answer: dict[str, Pieces]
    moment: NotRequired[dict[str, torch.Tensor]]


def state_in(state_dict: Mapping[str, Any]) -> State:
    """What of a synchroniser's state this file is about; nothing, where it is plain DDP's."""
    return _state(state_dict.get("own", {}), state_dict.get("answer", {}), state_dict.get("moment", {}))


def moments(state: State) -> dict[str, torch.Tensor]:
    """Second moments by name; empty where there are none."""
    return state.get("moment", {})


def export(carried: Iterable[Carried], rank: int) -> State:
    """Copies of all residuals by name."""
    own: dict[str, torch.Tensor] = {}
    answer: dict[str, Pieces] = {}
    moment: dict[str, torch.Tensor] = {}
    for part in carried:
        for run in part.runs:
            own[run.name] = part.residuals.own[run.span].clone()
            if part.moment is not None:
                moment[run.name] = part.moment.square[run.span].clone()
            piece = _answer_piece(part, run, rank)
            if piece is not None:
                start, values = piece
                answer[run.name] = [(start, values.clone())]
    return _state(own, answer, moment)


def fill(part: Carried, rank: int, state: State) -> int:
    """Put a state's residuals and moments of this part's parameters in place; names it does not hold stay at zero.

    Returns:
        How many answers found no place, because this rank does not own their elements any more.
    """
    lost = 0
    for index, run in enumerate(part.runs):
        if run.name in state["own"]:
            part.residuals.own[run.span] = state["own"][run.name]
        if run.name in moments(state):
            assert part.moment is not None, "residuals in a unit that this part does not have"
            part.moment.load(index, moments(state)[run.name])
        target = _answer_piece(part, run, rank)
        for start, values in state["answer"].get(run.name, ()):
            lost += values.numel() - (_overlay(*target, start, values) if target is not None else 0)
    return lost


def merge(below: State, above: State) -> State:
    """Both states' names; where both have one, `above` counts."""
    own, answer = {**below["own"], **above["own"]}, {**below["answer"], **above["answer"]}
    return _state(own, answer, {**moments(below), **moments(above)})


def in_gradients(state: State, *, keep: Container[str] = ()) -> State:
    """The same residuals in gradients' units, rounded once, and without moments.

    Args:
        keep: names that stay as they are.
    """
    units = {name: unit_of(square) for name, square in moments(state).items() if name not in keep}
    own = {name: values * units[name] if name in units else values for name, values in state["own"].items()}
    answer = {
        name: [(start, values * units[name][start : start + values.numel()]) for start, values in pieces]
        if name in units
        else pieces
        for name, pieces in state["answer"].items()
    }
    return _state(own, answer, {name: square for name, square in moments(state).items() if name in keep})


def check_fits(state: State, sizes: Mapping[str, int]) -> None:
    """Raise CheckpointError for a name or a size that the model does not have.

    Args:
        sizes: elements of each parameter by name.
    """
    for kind, values in (("own", state["own"]), ("moment", moments(state))):
        for name, tensor in values.items():
            _check_end(f"{kind}.{name}", tensor.numel(), sizes.get(name), whole=True)
    for name, pieces in state["answer"].items():
        end = max((start + values.numel() for start, values in pieces), default=0)
        _check_end(f"answer.{name}", end, sizes.get(name), whole=False)


def redistribute(states: Sequence[State], world_size: int) -> list[State]:
    """States for another number of ranks: every new rank owes the mean of what the old ones owed.

    Args:
        states: of all old ranks, in rank order.

    Returns:
        One state per new rank, without answers: what owners still owe of the mean is owed by every new rank. Moments
        are those of the first old rank, and residuals in their unit again.
    """
    square = moments(states[0])
    owed = pending(states)
    mean = {n: (values / unit_of(square[n]) if n in square else values).float() for n, values in owed.items()}
    return [
        _state({n: t.clone() for n, t in mean.items()}, {}, {n: t.clone() for n, t in square.items()})
        for _ in range(world_size)
    ]


def pending(states: Sequence[State]) -> dict[str, torch.Tensor]:
    """What is still owed of the agreed mean, by name: [elements] float64, (1/N) sum of own, plus the answers.

    In gradients' units, to which residuals in another unit are rounded in fp32.
    """
    owed: dict[str, torch.Tensor] = {}
    states = [in_gradients(state) for state in states]
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


def _state(own: dict[str, torch.Tensor], answer: dict[str, Pieces], moment: dict[str, torch.Tensor]) -> State:
    return State(own=own, answer=answer, moment=moment) if moment else State(own=own, answer=answer)


def _check_end(field: str, end: int, size: int | None, *, whole: bool) -> None:
    """A tensor that ends at element `end` of a parameter: it must fit, and be all of it where it is `whole`."""
    if size is not None and (end == size or (end < size and not whole)):
        return
    raise CheckpointError(
        f"A {'second moment' if field.startswith('moment.') else 'residual'} in the snapshot does not fit the model.",
        field=f"sync.{field}",
        found=f"{end} elements",
        expected=f"{size} elements" if size is not None else "no such parameter",
        next_step="Resume with the model that made the snapshot.",
    )


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

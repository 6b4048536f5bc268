"""What becomes of training apart when the number of ranks changes, or when gradients travel from there on.

All old ranks' states are needed, and every new rank computes the same from them. The agreed model is where all start;
what the old ranks had not brought into it yet is owed by the new ones, or paid in one last outer step.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from trainingkit.core.logging import LOG
from trainingkit.exchange.messages import mean_factors
from trainingkit.sync.every.outer import outer_step
from trainingkit.sync.every.spec import parse_every
from trainingkit.sync.every.state import Tensors, landed
from trainingkit.sync.residualstate import State, pending, state_in
from trainingkit.sync.residualstate import redistribute as spread

Stored = Mapping[str, Any]
GRADIENTS = "gradients"
"""In the state of a run that had gone over to training apart (`sync.going`): that of its synchroniser of gradients."""


def is_apart(state: Stored) -> bool:
    """Whether a synchroniser's state is of training apart."""
    return "agreed" in state


def was_detached(state: Stored) -> bool:
    """Whether the synchroniser that made a state was detached, so that the run went on in plain DDP."""
    return bool(state.get("detached", False))


def tell_of_detached(state: Stored) -> None:
    """Log that a state's synchroniser was detached, and that one of the other kind goes on from the model as it is.

    `detached` counts for a synchroniser of the same kind only: one of training apart, or one of gradients. For the
    other kind somebody has asked since.
    """
    before, now = "gradients", "ranks train apart"
    if is_apart(state):
        before, now = "training apart", "gradients are squeezed"
    owes = any(bool(values.any()) for values in state.get("update", {}).get("own", {}).values())
    dropped = "; what its rounds still owed is dropped" if owes else ""
    LOG.warning("the snapshot's synchroniser, of %s, was detached: from here on %s%s", before, now, dropped)


def owed(states: Sequence[Stored]) -> Tensors:
    """What is on its way to the agreed model, as a mean over ranks, by name: [elements] float64.

    (1/N) sum of residuals, owners' answers, rounds that fly, and each rank's steps since its last one by their weight.

    Args:
        states: of all ranks, in rank order.
    """
    total = pending([State(own=state["update"]["own"], answer=state["update"]["answer"]) for state in states])
    for name, parameter in states[0]["agreed"]["parameters"].items():
        total.setdefault(name, torch.zeros(parameter.numel(), dtype=torch.float64))
    for name, mean in states[0]["agreed"]["mean"].items():
        total[name] += mean
    for number, fragment in enumerate(states[0]["fragments"]):
        factors = mean_factors([state["fragments"][number]["tokens"] for state in states])
        for name in fragment["names"]:
            for state, factor in zip(states, factors, strict=True):
                total[name] += _since_last_round(state, name).double() * (factor / len(states))
    return total


def redistribute(states: Sequence[Stored], *, alone: bool) -> dict[str, Any]:
    """The state with which every rank of another number of ranks goes on.

    Rounds that fly are applied; every new rank has the agreed model and owes the mean of what the old ones owed. One
    that is alone has no messages to owe it in, so its model is that much further.
    """
    others = {GRADIENTS: gradients(states, None)} if GRADIENTS in states[0] and not alone else {}
    states = [landed(state) for state in states]
    parameters, local = states[0]["agreed"]["parameters"], states[0]["local"]
    mean = {name: values.float() for name, values in owed(states).items()}
    ahead = {name: values - mean[name] for name, values in parameters.items()} if alone else parameters
    return {
        **{name: value for name, value in states[0].items() if name != GRADIENTS},
        **others,
        "fragments": [
            {**first, "tokens": 0.0, "decayed": _mean_decayed(each)}
            for first, each in zip(
                states[0]["fragments"], zip(*(s["fragments"] for s in states), strict=True), strict=True
            )
        ],
        "update": {"own": {} if alone else mean, "answer": {}},
        "local": {name: values.to(local[name].dtype) for name, values in ahead.items()},
    }


def _mean_decayed(fragment: Sequence[Stored]) -> list[float]:
    """What decay took from one fragment's residuals, by parcel, as a mean over ranks."""
    return [statistics.fmean(each) for each in zip(*(counts.get("decayed", ()) for counts in fragment), strict=True)]


def gradients(states: Sequence[Stored], rank: int | None) -> dict[str, Any]:
    """What gradients still owed while ranks trained apart, with what else their synchroniser knew; empty without any.

    Args:
        states: of all old ranks, in rank order.
        rank: whose; None: of another number of ranks, which all owe the mean.
    """
    waiting = [state.get(GRADIENTS, {}) for state in states]
    if rank is not None or not any(state_in(each)["own"] for each in waiting):
        return dict(waiting[rank or 0])
    kept = {name: value for name, value in waiting[0].items() if name not in ("own", "answer", "moment", "values")}
    return {**kept, **spread([state_in(each) for each in waiting], 1)[0]}


def final_model(states: Sequence[Stored]) -> Tensors:
    """The model after one last outer step over all that is owed, by name: [elements] fp32.

    After `detach` the model has gone on without rounds, so what they had of momentum says nothing any more.
    """
    states = [landed(state) for state in states]
    every = parse_every(states[0]["spec"]).every
    agreed = states[0]["agreed"]
    model: Tensors = {}
    for name, mean in owed(states).items():
        model[name] = agreed["parameters"][name].clone()
        momentum = agreed["momentum"].get(name) if not was_detached(states[0]) else None
        outer_step(model[name], mean.float(), momentum.clone() if momentum is not None else None, every)
    return model


def _since_last_round(state: Stored, name: str) -> torch.Tensor:
    """[elements] fp32: where this rank's steps since its last round began, less where they have come to."""
    local = state["local"][name]
    begin = state["launched"].get(name, state["agreed"]["parameters"][name])
    return begin.to(local.dtype).float() - local.float()

"""The state of training apart, by parameter name.

    spec        the text of the settings
    fragments   of each: its names, the weight and steps since its last round, whether one flies and with what weight,
                and what decay took from the residuals of its parcels
    update      what this rank's rounds still owe: `own` and `answer` as in `sync.residualstate`, in units of parameters
    local       name -> [elements], this rank's model
    launched    name -> [elements] fp32, the local model when the round started that flies
    agreed      the same on all ranks: `parameters`, `momentum` of the outer step, `mean` of the rounds that fly, each
                name -> [elements] fp32

A round that flies has landed when its state is taken, so its mean is stored and applied at its own time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from trainingkit.core.errors import CheckpointError
from trainingkit.core.logging import LOG
from trainingkit.sync.every.fragment import Fragment
from trainingkit.sync.every.outer import outer_step
from trainingkit.sync.every.parcel import Parcel
from trainingkit.sync.every.settings import Every
from trainingkit.sync.every.spec import EverySpec, parse_every
from trainingkit.sync.residualstate import State, check_fits, export, fill

Tensors = dict[str, torch.Tensor]


def stored(fragments: Sequence[Fragment], spec: EverySpec, rank: int) -> dict[str, Any]:
    """Copies of everything; no round may be on its way."""
    parcels = [parcel for fragment in fragments for parcel in fragment.parcels]
    flying = [parcel for fragment in fragments if fragment.flying for parcel in fragment.parcels]
    return {
        "spec": str(spec),
        "fragments": [_counts(fragment) for fragment in fragments],
        "update": dict(export((carried for parcel in parcels for carried in parcel.carried), rank)),
        "local": {n: p.detach().flatten().to("cpu", copy=True) for parcel in parcels for n, p in parcel.named.items()},
        "launched": _by_name((parcel, parcel.launched) for parcel in flying),
        "agreed": {
            "parameters": _by_name((parcel, parcel.agreed) for parcel in parcels),
            "momentum": _by_name((parcel, parcel.momentum) for parcel in parcels),
            "mean": _by_name((parcel, parcel.delta) for parcel in flying),
        },
    }


def load_fragments(state: Mapping[str, Any], fragments: Sequence[Fragment], spec: EverySpec, rank: int) -> None:
    """Put a state in place. With other fragments, H or outer step than its own, what flies is applied at once."""
    same = _same_rhythm(state, fragments, spec.every)
    if not same or _outer(parse_every(state["spec"]).every) != _outer(spec.every):
        if any(each["flying"] for each in state["fragments"]):
            LOG.info("the state's rounds were those of %s: the ones that fly are applied now", state["spec"])
        state = landed(state)
    counted = state["fragments"] if same else [_joint(state)] * len(fragments)
    for fragment, counts in zip(fragments, counted, strict=True):
        fragment.restore(**{key: counts[key] for key in ("tokens", "since", "flying", "weight")})
    _put_decayed(fragments, [each.get("decayed", []) for each in state["fragments"]])
    for fragment in fragments:
        for parcel in fragment.parcels:
            _fill_parcel(parcel, state, flying=fragment.flying)
    lost = _fill_residuals(fragments, state, rank)
    if lost:
        LOG.warning("%d owners' residuals were dropped: another rank owns them since the parcels changed", lost)


def landed(state: Mapping[str, Any]) -> dict[str, Any]:
    """The state with the rounds that fly applied, each by the settings that started it."""
    every = parse_every(state["spec"]).every
    agreed = {key: dict(tensors) for key, tensors in state["agreed"].items()}
    local = dict(state["local"])
    for name, mean in agreed["mean"].items():
        parameter, momentum = agreed["parameters"][name].clone(), agreed["momentum"].get(name)
        momentum = momentum.clone() if momentum is not None else None
        outer_step(parameter, mean.clone(), momentum, every)
        local[name] = (local[name].float() + (parameter - state["launched"][name])).to(local[name].dtype)
        agreed["parameters"][name] = parameter
        if momentum is not None:
            agreed["momentum"][name] = momentum
    counts = [{**each, "flying": False} for each in state["fragments"]]
    return {**state, "fragments": counts, "local": local, "launched": {}, "agreed": {**agreed, "mean": {}}}


def check_model(state: Mapping[str, Any], fragments: Sequence[Fragment]) -> None:
    """Raise CheckpointError unless the state is of a model with these parameters."""
    sizes = {n: p.numel() for fragment in fragments for parcel in fragment.parcels for n, p in parcel.named.items()}
    found = {name: tensor.numel() for name, tensor in state["agreed"]["parameters"].items()}
    odd = sorted(name for name in sizes | found if sizes.get(name) != found.get(name))
    if odd:
        raise CheckpointError(
            "The agreed model in the snapshot is of another model.",
            field=f"sync.agreed.{odd[0]}",
            found=f"{found[odd[0]]} elements" if odd[0] in found else "no such parameter",
            expected=f"{sizes[odd[0]]} elements" if odd[0] in sizes else "no such parameter",
            next_step="Resume with the model that made the snapshot.",
        )
    check_fits(State(own=state["update"]["own"], answer=state["update"]["answer"]), sizes)


def _put_decayed(fragments: Sequence[Fragment], decayed: Sequence[Sequence[float]]) -> None:
    """By parcel where there are as many as then; else all of it in the first."""
    alike = [len(fragment.parcels) for fragment in fragments] == [len(each) for each in decayed]
    total = sum(sum(each) for each in decayed)
    for number, fragment in enumerate(fragments):
        for index, parcel in enumerate(fragment.parcels):
            parcel.decayed = decayed[number][index] if alike else total if (number, index) == (0, 0) else 0.0


def _counts(fragment: Fragment) -> dict[str, Any]:
    return {
        "names": list(fragment.names),
        "tokens": fragment.tokens,
        "since": fragment.since,
        "flying": fragment.flying,
        "weight": fragment.weight,
        "decayed": [parcel.decayed for parcel in fragment.parcels],
    }


def _joint(state: Mapping[str, Any]) -> dict[str, Any]:
    """Counts for fragments that the state does not know: as if all had begun with its oldest round."""
    counts = state["fragments"]
    tokens, since = max(each["tokens"] for each in counts), max(each["since"] for each in counts)
    return {"tokens": tokens, "since": since, "flying": False, "weight": 0.0}


def _same_rhythm(state: Mapping[str, Any], fragments: Sequence[Fragment], every: Every) -> bool:
    theirs = parse_every(state["spec"]).every
    names = [each["names"] for each in state["fragments"]]
    return (theirs.steps, theirs.lag) == (every.steps, every.lag) and names == [list(f.names) for f in fragments]


def _outer(every: Every) -> tuple[float, float, bool]:
    return every.outer_lr, every.outer_momentum, every.nesterov


def _fill_parcel(parcel: Parcel, state: Mapping[str, Any], *, flying: bool) -> None:
    agreed = state["agreed"]
    for flat, tensors in (
        (parcel.agreed, agreed["parameters"]),
        (parcel.momentum, agreed["momentum"]),
        (parcel.delta if flying else None, agreed["mean"]),
        (parcel.launched if flying else None, state["launched"]),
    ):
        for name, view in _named_views(parcel, flat):
            view.copy_(tensors[name]) if name in tensors else view.zero_()
    with torch.no_grad():
        for name, parameter in parcel.named.items():
            parameter.copy_(state["local"][name].view(parameter.shape))


def _fill_residuals(fragments: Sequence[Fragment], state: Mapping[str, Any], rank: int) -> int:
    """Put residuals in place; those that the state does not hold are zero. Returns how many answers found no place."""
    owed = State(own=state["update"]["own"], answer=state["update"]["answer"])
    lost = 0
    for parcel in (parcel for fragment in fragments for parcel in fragment.parcels):
        parcel.forget_residuals()
        lost += sum(fill(carried, rank, owed) for carried in parcel.carried)
    return lost


def _by_name(pairs: Iterator[tuple[Parcel, torch.Tensor | None]]) -> Tensors:
    return {name: view.clone() for parcel, flat in pairs for name, view in _named_views(parcel, flat)}


def _named_views(parcel: Parcel, flat: torch.Tensor | None) -> Iterator[tuple[str, torch.Tensor]]:
    """Each parameter's elements of a flat tensor, [elements]; nothing where there is no tensor."""
    if flat is None:
        return
    for name, (_, view) in zip(parcel.named, parcel.views(flat), strict=True):
        yield name, view.flatten()

"""Ranks that train apart (`sync.every`): what the loop and its snapshots do otherwise then.

A snapshot's `model/` is the agreed model. Each rank's own parameters, moments and residuals are kept under its name.

    model/..., sync/agreed/...                      the same on all ranks
    rank-R/sync/..., rank-R/optim/..., rank-R/group/...   that rank's own
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from trainingkit.core.units import format_bytes
from trainingkit.recovery import attach_tensors, detach_tensors
from trainingkit.sync.contract import Sync, TrainsApart
from trainingkit.sync.control import peers_watched
from trainingkit.sync.every.apart import EverySync
from trainingkit.sync.every.handover import final_model, gradients, is_apart, redistribute

OPTIMIZER = ("optim/", "group/")
AGREED = "agreed"

Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Restored:
    """What a rank goes on with.

    Args:
        training, rest: as `recovery.restore_training` wants them.
        sync: the synchroniser's state.
    """

    training: Tensors
    rest: Any
    sync: dict[str, Any]


def settle(sync: Sync, say: Callable[[str, str], object]) -> bool:
    """Bring all ranks to one model, where they have not. Returns whether that changed anything. All ranks call it.

    Args:
        say: told (event, text) of what that sent: it is in no step's record.
    """
    if not isinstance(sync, TrainsApart):
        return False
    before = _sent_bytes(sync)
    with peers_watched():
        moved = sync.settle()
    sent = _sent_bytes(sync) - before
    if sent:
        say("sync", f"The last exchange brought all ranks to one model; this one sent {format_bytes(sent)}.")
    return moved


def never_meet(sync: Sync, total: int | None) -> str | None:
    """A word for a run that ends before ranks first meet; None for others.

    Args:
        total: steps of the run; None: until the data end.
    """
    if not isinstance(sync, EverySync) or total is None or total >= sync.spec.every.steps:
        return None
    return (
        f"Ranks exchange every {sync.spec.every.steps} steps and run.steps is {total}: they train on their own until "
        "the run ends, and meet once then."
    )


def _sent_bytes(sync: Sync) -> int:
    return int(sync.stats().get("sent_bytes", 0))


@contextlib.contextmanager
def agreed_weights(sync: Sync) -> Iterator[None]:
    """The agreed model in place of a rank's own, where they differ."""
    with sync.agreed_weights() if isinstance(sync, TrainsApart) else contextlib.nullcontext():
        yield


def stored(training: Mapping[str, Tensor], sync_state: dict[str, Any], rank: int) -> tuple[Tensors, Any]:
    """What a snapshot keeps of model, optimizer and synchroniser: tensors by name, and the synchroniser's other values.

    Args:
        training: the first result of `recovery.training_tensors`.
    """
    tensors = dict(training)
    if not is_apart(sync_state):
        own, plain = detach_tensors(sync_state, f"rank-{rank}/sync")
        return tensors | own, plain
    agreed = sync_state[AGREED]
    for name, values in agreed["parameters"].items():
        live = tensors[f"model/{name}"]
        tensors[f"model/{name}"] = values.view(live.shape).to(live.dtype)
    tensors = {_own(name, rank): tensor for name, tensor in tensors.items()}
    shared, plain_agreed = detach_tensors(agreed, f"sync/{AGREED}")
    own, plain = detach_tensors({k: v for k, v in sync_state.items() if k != AGREED}, f"rank-{rank}/sync")
    return tensors | shared | own, {**plain, AGREED: plain_agreed}


def read_back(tensors: Mapping[str, Tensor], state: Mapping[str, Any], rank: int) -> Restored:
    """The inverse of `stored`.

    Args:
        tensors: what the snapshot holds for the rank, as `recovery.load_new` gives it.
        state: that rank's, with `training` and `sync`.
        rank: that made them.
    """
    prefix = f"rank-{rank}/"
    training = {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
    return Restored(training, state["training"], attach_tensors(state["sync"], tensors))


def hand_over(
    read: Callable[[int], tuple[Tensors, dict[str, Any]]], old: int, now: tuple[int, int], sync: Sync
) -> tuple[Restored, str]:
    """What this rank goes on with where ranks trained apart and are now of another number, or do not any more.

    Args:
        read: gives what the snapshot holds for an old rank. All ranks call it for all old ranks, in order.
        old: number of old ranks.
        now: this rank, and the number of ranks.
        sync: what this run uses.

    Returns:
        That, and a sentence about it.
    """
    rank, ranks = now
    found = [read_back(*read(each), each) for each in range(old)]
    states = [each.sync for each in found]
    apart = isinstance(sync, TrainsApart) and sync.goes_on_from(states[0])
    own = found[rank % old if apart else 0]
    if apart:
        return Restored(own.training, own.rest, redistribute(states, alone=ranks == 1)), (
            f"The snapshot is of {old} ranks: all start from its agreed model and owe what was on the way to it, with "
            f"the moments of rank (r mod {old})."
        )
    training = dict(own.training)
    for name, values in final_model(states).items():
        live = training[f"model/{name}"]
        training[f"model/{name}"] = values.view(live.shape).to(live.dtype)
    waiting = gradients(states, rank if ranks == old else None)
    return Restored(training, own.rest, {name: value for name, value in waiting.items() if name != "pilot"}), (
        "Ranks trained apart before: all start from the agreed model with what was on the way to it, and from the "
        "moments of rank 0."
    )


def _own(name: str, rank: int) -> str:
    return f"rank-{rank}/{name}" if name.startswith(OPTIMIZER) else name

"""A run whose gradients travel goes on with another number of ranks: what each new rank starts from.

Model, optimizer and schedule are the same on all ranks. What the old ranks' messages still owed is owed by the new ones
(`sync.residualstate.redistribute`): its mean over ranks, which is what reaches the model, stays the same sum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from trainingkit.recovery import attach_tensors
from trainingkit.sync.residualstate import redistribute, state_in
from trainingkit.trainer.rng import seed_all

STEP_STRIDE = 0x9E3779B97F4A7C15
"""An odd number, so that no two steps give a new rank the same seed."""
BY_LAYOUT = "values"
"""Part of a synchroniser's state that counts on how many owners share a bucket; it begins anew."""

ReadOwn = Callable[[int], tuple[Mapping[str, Tensor], Mapping[str, Any]]]


def hand_over(read_own: ReadOwn, old: int, ranks: int) -> dict[str, Any]:
    """The synchroniser's state with which every new rank goes on; the same on all of them.

    Costs the reading of all old ranks' residuals on every new rank, and room for them in memory.

    Args:
        read_own: gives the tensors that an old rank alone wrote, and its state.
        old: number of old ranks.
        ranks: number of new ones.
    """
    found: list[dict[str, Any]] = []
    for rank in range(old):
        tensors, state = read_own(rank)
        found.append(attach_tensors(state["sync"], tensors))
    if not any(state_in(each)["own"] or state_in(each)["answer"] for each in found):
        return {name: value for name, value in found[0].items() if name != BY_LAYOUT}
    owed = redistribute([state_in(each) for each in found], ranks)[0]
    kept = {name: value for name, value in found[0].items() if name not in (BY_LAYOUT, "own", "answer", "moment")}
    return {**kept, **owed}


def begin_random(seed: int, rank: int, step: int) -> None:
    """Random numbers of a rank that the snapshot does not know: others than it or any other rank has drawn before."""
    seed_all((seed + 1 + rank + (step + 1) * STEP_STRIDE) % 2**63)


def told(old: int, ranks: int) -> str:
    """What a person should know of it."""
    more = ranks - old
    drawn = f"; {more} new rank{'s' if more > 1 else ''} with random numbers of their own" if more > 0 else ""
    return (
        f"The snapshot is of {old} rank{'s' if old > 1 else ''} and {ranks} go on: what was owed is owed by all of "
        f"them{drawn}. A step has {ranks}/{old} of the samples it had."
    )

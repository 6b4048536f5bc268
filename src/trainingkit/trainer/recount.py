"""A position in the data, kept by one number of ranks and continued by another.

Our own loader counts the samples of all ranks, so its position means the same for any number of them. Behind a
DistributedSampler the batches of all ranks so far are a stretch of one order, which other ranks can share anew.
"""

from __future__ import annotations

from typing import Any

from torch.utils.data import DistributedSampler


def recounted(state: dict[str, Any], loader: Any, ranks: int) -> tuple[dict[str, Any], str | None]:
    """The position for this number of ranks, and what a person should know: None where it is exact.

    Args:
        state: of a `Feed`, which names the `ranks` that made it.
        loader: says `any_world_size = True` where its own state means the same for any number of ranks.
    """
    before, done = state.get("ranks", ranks), state["batches"]
    if before == ranks or done == 0 or getattr(loader, "any_world_size", False):
        return state, None
    if isinstance(getattr(loader, "sampler", None), DistributedSampler) and "loader" not in state:
        share, rest = divmod(done * before, ranks)
        moved = {**state, "batches": share, "ranks": ranks}
        why = f"{done} on each of {before} ranks do not divide by {ranks}"
        return moved, f"Batches of this pass that come again: {rest}; {why}." if rest else None
    return {**state, "ranks": ranks}, (
        f"The loader's position was kept by {before} ranks and {ranks} go on: some samples of this pass may come "
        "twice or not at all. trainingkit's Loader and a DistributedSampler can be continued exactly."
    )

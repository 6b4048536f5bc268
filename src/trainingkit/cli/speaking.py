"""Under torchrun or srun every rank is a command of its own and could say the same: one tells all, others a line."""

from __future__ import annotations

import traceback

from trainingkit.cluster.place import ALONE, Place, find_place
from trainingkit.core.errors import ClusterError, PeerLost, TrainingKitError


def tells_all(error: BaseException) -> bool:
    """Whether this rank shows the whole message: alone, or as the first rank that failed.

    First is who asks first, also a rank whose peer is gone: the peer may have died without a word. Where nobody can be
    asked any more, every rank tells all but those whose peer is gone.
    """
    place = _place()
    if place.world_size == 1:
        return True
    from trainingkit.cluster.speaker import is_first

    first = is_first(place, "failure")
    return not isinstance(error, PeerLost) if first is None else first


def one_line(error: BaseException) -> str:
    """What failed here, for a rank that was not the first."""
    if isinstance(error, TrainingKitError):
        parts = [error.problem, *(f"{name}: {value}" for name, value in _details(error) if value is not None)]
    else:
        frames = traceback.extract_tb(error.__traceback__)
        where = f" in {frames[-1].filename}, line {frames[-1].lineno}" if frames else ""
        parts = [f"{type(error).__name__}: {error}{where}"]
    text = " ".join("; ".join(parts).split())
    return f"rank {_place().rank} failed after another rank, which says more: {text}\n"


def _details(error: TrainingKitError) -> tuple[tuple[str, object], ...]:
    return (("field", error.field), ("found", error.found))


def _place() -> Place:
    try:
        return find_place()
    except ClusterError:
        return ALONE

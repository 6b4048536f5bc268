"""Doing something on every rank of a group, and failing on all of them when it fails on one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch.distributed as dist
from torch.distributed import ProcessGroup

from trainingkit.core.errors import CheckpointError, PeerLost

T = TypeVar("T")


def agree(group: ProcessGroup | None, task: Callable[[], T], *, doing: str) -> list[T]:
    """Run `task` on every rank and exchange the results, in rank order. One collective; a barrier, too.

    Args:
        group: all its ranks must call; None for a single process.
        task: may raise CheckpointError; its result is small and travels between the ranks.
        doing: for the message when a peer is lost, for example "writing a snapshot".

    Raises:
        CheckpointError: that of the lowest rank whose task raised (on every rank), or a peer is lost.
    """
    mine = _outcome(task)
    outcomes: list[Any] = [mine]
    if group is not None:
        outcomes = [None] * dist.get_world_size(group)
        try:
            dist.all_gather_object(outcomes, mine, group=group)
        except RuntimeError as error:
            raise peer_lost(doing, error) from error
    for _, problem in outcomes:
        if problem is not None:
            raise problem
    return [value for value, _ in outcomes]


class SavingPeerLost(CheckpointError, PeerLost):
    """Another rank is gone, and with it the snapshot that was being written or read. Never the first cause."""


def peer_lost(doing: str, error: Exception) -> SavingPeerLost:
    """What a survivor says when a collective of the saving group fails."""
    sentence = str(error).strip().splitlines()[:1]
    return SavingPeerLost(
        f"Another rank was lost while {doing}.",
        field="snapshots",
        found=sentence[0].split(". ")[0] if sentence else type(error).__name__,
        expected="every rank to take part",
        next_step="Look at the other rank's message, then resume from the snapshot before this one.",
    )


def _outcome(task: Callable[[], T]) -> tuple[T | None, CheckpointError | None]:
    try:
        return task(), None
    except CheckpointError as error:
        return None, error
    except Exception as error:
        return None, unforeseen(error)


def unforeseen(error: BaseException) -> CheckpointError:
    """A failure that nobody expected, as one that can be told; its traceback is in the log."""
    return CheckpointError(
        f"A snapshot failed: {type(error).__name__}: {error}",
        field="snapshots",
        next_step="See the log for the traceback; earlier snapshots are intact.",
    )

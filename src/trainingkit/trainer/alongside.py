"""A rank whose journal is lost: what of another rank's it can go on with, because all of them walk alongside.

The loaders of this package give all ranks parts of one order, so one position says where all are. A loader of a rank's
own shards does not; nor need something that a loop keeps be the same on all ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainingkit.recovery.journal import Cover
from trainingkit.recovery.together import agree
from trainingkit.trainer.session import Session


@dataclass(frozen=True)
class Alike:
    """What ranks have in common: there a rank whose records are lost goes on with another's.

    Args:
        place: whether they walk over the data alongside.
        kept: names of what the loop keeps that is the same on all of them.
    """

    place: bool = True
    kept: frozenset[str] = frozenset()


def find_alike(session: Session, covered: Cover, state: Mapping[str, Any]) -> Alike:
    """By the snapshot's states of all ranks, and by the last records of those that have one. All ranks call it."""
    if not covered.lost:
        return Alike()
    before = agree(session.snapshot_group, lambda: _common(state), doing="replaying the journal")
    after = [_common(own["extra"]) for own in covered.steps[-1].own.values()]
    names = {name for each in after for name in each["kept"]}

    def same(name: str, *, of: str | None = None) -> bool:
        groups = [[each[of].get(name) if of else each[name] for each in some] for some in (before, after)]
        return all(value == values[0] for values in groups for value in values)

    return Alike(same("feed") and same("epoch"), frozenset(name for name in names if same(name, of="kept")))


def _common(state: Mapping[str, Any]) -> dict[str, Any]:
    feed = {name: value for name, value in (state.get("feed") or {}).items() if name != "pass_random"}
    return {"feed": feed, "epoch": state.get("epoch"), "kept": state.get("kept") or {}}


def without_own(state: Mapping[str, Any], others: Mapping[str, Any], alike: Alike) -> dict[str, Any]:
    """The loop's state of a rank whose records are lost.

    Args:
        state: the snapshot's, which counts where ranks have nothing in common.
        others: another rank's after the last step, which counts elsewhere.
    """
    taken = {name: value for name, value in (others.get("kept") or {}).items() if name in alike.kept}
    kept = {**(state.get("kept") or {}), **taken}
    if not alike.place:
        return {**state, "kept": kept}
    feed = dict(others.get("feed") or {})
    if "pass_random" in feed:
        feed["pass_random"] = (state.get("feed") or {}).get("pass_random")
    return {**state, **others, "feed": feed or None, "kept": kept}

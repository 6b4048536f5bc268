"""After a loss: the steps that the journal holds are taken again on top of a snapshot, without forward or backward.

Each step's messages are decoded into the gradients that the optimizer saw; they are clipped by the norm that was
recorded, and the optimizer and the schedule step as they did. So parameters, buffers, optimizer and schedule are those
of the last complete step, bit for bit; so are each rank's place in the data and its random state. Residuals are the
snapshot's: what later steps still owed is lost, and said.

Where ranks train apart, the agreed model takes their rounds again (`trainer.retaking_rounds`), up to the last that was
applied. All ranks go on from it, with the optimizer's state of the snapshot; steps after that round are trained again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from trainingkit.core.errors import CheckpointError
from trainingkit.recovery.journal import MARK, Base, Cover, Entry, Scan, cover, scan, slots, until
from trainingkit.recovery.together import agree
from trainingkit.sync.contract import Sync
from trainingkit.sync.every.apart import EverySync
from trainingkit.sync.listening import of_gradients
from trainingkit.sync.residualstate import in_gradients, state_in
from trainingkit.sync.squeezed import Squeezed
from trainingkit.trainer.alongside import Alike, find_alike, without_own
from trainingkit.trainer.retaking import Loop, take, taken_elsewhere
from trainingkit.trainer.retaking_rounds import take_rounds
from trainingkit.trainer.rng import random_state, set_random_state
from trainingkit.trainer.session import Session
from trainingkit.trainer.travelled import not_covered


@dataclass(frozen=True)
class Replayed:
    """What a replay came to.

    Args:
        step: the last one taken.
        attempt: that took it first.
        state: this rank's state of the loop after it.
        seconds: it took, reading included.
        text: for a person.
    """

    step: int
    attempt: int
    state: dict[str, Any]
    steps: int
    seconds: float
    text: str


def replay(
    session: Session, loop: Loop, step: int, state: Mapping[str, Any], say: Callable[[str, str], None]
) -> Replayed | None:
    """Take the journal's steps after a snapshot that has just been restored. All ranks call it.

    Args:
        step: of the snapshot.
        state: this rank's in it.
        say: told (event, text) of what a person should know.

    Returns:
        None where there is nothing to replay.

    Raises:
        CheckpointError: the journal's gradients are not those that were applied.
    """
    began = time.perf_counter()
    base = base_of(step, state, session.world_size)
    if base is None:
        return None
    scans = scan_together(session, base)
    for found in scans:
        if found.problem is not None and not found.cut:
            say("damaged", f"The journal of rank {found.slot.rank}, {found.slot.path.name}, is damaged {found.problem}")
    covered = cover(base, scans)
    _say_others(scans, base, say)
    if not any(found.origin is not None and found.origin.run == base.run for found in scans):
        say("journal", f"A journal was kept, but nothing of this run's is there: it goes on from step {step}.")
    if covered.why is not None:
        say("journal", f"The journal ends at step {covered.end or step}: {covered.why}.")
    if not covered.steps:
        return None
    whys = agree(session.snapshot_group, lambda: _unlike(loop, covered), doing="replaying the journal")
    why = next((each for each in whys if each is not None), None)
    if why is not None:
        say("journal", f"{len(covered.steps)} steps of the journal were not replayed: {why}.")
        return None
    owed = _owed(session, loop.sync)
    taken, why = _take_all(session, loop, covered)
    if why is not None:
        say("journal", f"The replay ends at step {step + taken}: {why}.")
    covered = until(covered, step + taken)
    if not covered.steps:
        return None
    alike = find_alike(session, covered, state)
    left = _finish(session, loop, covered, state, alike)
    seconds = time.perf_counter() - began
    count = len(covered.steps)
    apart = ""
    if isinstance(loop.sync, EverySync):
        apart = f"Ranks go on from the model that was agreed on then, with the optimizers' state of step {step}. "
    text = (
        f"Snapshot of step {step}, then {count} step{'s' if count > 1 else ''} replayed from the journal in "
        f"{seconds:.1f} s. {apart}Residuals are those of step {step}: what later steps still owed is lost (the "
        f"snapshot's sum of |residual| is {owed:.4g})."
    )
    last = covered.steps[-1]
    return Replayed(last.step, last.attempt, left.state, count, seconds, text + _losses(covered, step, alike))


def _take_all(session: Session, loop: Loop, covered: Cover) -> tuple[int, str | None]:
    """Take steps up to the first that was taken in another state: how many, and what tells that. All ranks call it.

    Raises:
        CheckpointError: a step could not be taken, or ranks found different ends.
    """

    again = take_rounds if isinstance(loop.sync, EverySync) else take

    def mine() -> tuple[int, str | None]:
        for index, each in enumerate(covered.steps):
            why = taken_elsewhere(loop, each, session.rank)
            if why is not None:
                return index, why
            again(loop, each, session)
        return len(covered.steps), None

    ends = agree(session.snapshot_group, mine, doing="replaying the journal")
    taken, why = min(ends, key=lambda end: end[0])
    if any(end != taken for end, _ in ends):
        last = covered.steps[0].step + taken - 1
        raise CheckpointError(
            "The ranks did not come to the same end of the journal.",
            field="journal",
            found=f"{why} on one of them, and not on all",
            expected="every rank in the state in which the step was taken",
            next_step=f"Go on before that step: trainingkit recover RUN --to-step {last}",
        )
    return taken, why


def base_of(step: int, state: Mapping[str, Any], world_size: int) -> Base | None:
    """What a journal must follow to continue a snapshot; None where none was kept when it was made."""
    mark = state.get(MARK)
    return Base(mark["run"], mark["attempt"], step, world_size) if mark else None


def scan_together(session: Session, base: Base) -> list[Scan]:
    """Every segment that may lead on from a base, looked through; the ranks share the reading."""
    wanted = [slot for slot in slots(session.run.journal) if slot.attempt >= base.attempt]

    def mine() -> list[Scan]:
        return [scan(slot) for index, slot in enumerate(wanted) if index % session.world_size == session.rank]

    parts = agree(session.snapshot_group, mine, doing="looking through the journal")
    return sorted((each for part in parts for each in part), key=lambda each: (each.slot.rank, each.slot.path))


def _say_others(scans: list[Scan], base: Base, say: Callable[[str, str], None]) -> None:
    """Steps that were written by another number of ranks cannot be decoded by these."""
    others = [
        (found.entries[-1].step, found.origin.world_size)
        for found in scans
        if found.origin is not None and found.entries and found.origin.run == base.run
    ]
    last, ranks = max((each for each in others if each[1] != base.world_size), default=(base.step, 0))
    if last > base.step:
        count = last - base.step
        steps = f"{count} step{'s' if count > 1 else ''} after {base.step}"
        text = f"The journal is of {ranks} ranks and {base.world_size} go on: {steps} were not replayed."
        say("journal", f"{text} A resume with {ranks} workers can, and after it one with another number.")


def _unlike(loop: Loop, covered: Cover) -> str | None:
    """Why this loop cannot take the steps that were kept; None where it can."""
    why, carrier = not_covered(loop.sync), _carrier(loop.sync)
    if why is not None or carrier is None:
        return f"it does not cover {why}"
    if any(step.shared["wire"] != carrier.wire_format for step in covered.steps):
        what = "rounds" if isinstance(carrier, EverySync) else "gradients"
        return f"{what} travel otherwise in this run than when it was written"
    if isinstance(carrier, EverySync):
        return None
    groups = len(loop.optimizer.param_groups)
    if any("groups" not in step.shared for step in covered.steps):
        return "an earlier version wrote it, which did not keep the settings of the optimizer's groups"
    if any(len(step.numbers["lrs"]) != groups for step in covered.steps):
        return f"it is not of an optimizer with {groups} group{'s' if groups > 1 else ''}"
    return None


@dataclass(frozen=True)
class _Left:
    """What the last step left: this rank's state of the loop, and those of its random states that changed."""

    state: dict[str, Any]
    random: dict[str, Any]


def _finish(session: Session, loop: Loop, covered: Cover, state: Mapping[str, Any], alike: Alike) -> _Left:
    """Set once, as the last step left it: the synchroniser, buffers, random states. All ranks call it."""
    left: list[_Left] = []

    def mine() -> None:
        left.append(_leave(session, loop, covered, state, alike))

    agree(session.snapshot_group, mine, doing="replaying the journal")
    _settle(loop)
    set_random_state({**random_state(), **left[0].random})
    return left[0]


def _leave(session: Session, loop: Loop, covered: Cover, state: Mapping[str, Any], alike: Alike) -> _Left:
    """The synchroniser's progress and the buffers are set. No collective: ranks may fail alone here."""
    last, carrier = covered.steps[-1], _carrier(loop.sync)
    assert carrier is not None
    carrier.catch_up(last.shared["sync"])
    aligned = (0,) if 0 in last.entries else range(session.world_size)
    for name, data in _newest(covered, "buffer/", aligned).items():
        buffer = loop.buffers.persistent()[name]
        if not data:
            continue
        values = torch.frombuffer(bytearray(data), dtype=torch.uint8).view(buffer.dtype)
        with torch.no_grad():
            buffer.copy_(values.view(buffer.shape))
    if session.rank not in last.own:
        return _Left(without_own(state, next(iter(last.own.values()))["extra"], alike), {})
    drawn = _newest(covered, "random/", (session.rank,))
    return _Left({**state, **last.own[session.rank]["extra"]}, {n: json.loads(data) for n, data in drawn.items()})


def _carrier(sync: Sync) -> Squeezed | EverySync | None:
    """What carries what a journal keeps."""
    return sync if isinstance(sync, EverySync) else of_gradients(sync)


def _settle(loop: Loop) -> None:
    """A synchroniser that may change its kind goes where the pilot says when it takes a state. All ranks call it: they
    prepare that together, so no rank may have failed before.
    """
    gradients = of_gradients(loop.sync)
    if gradients is not None and gradients is not loop.sync:
        loop.sync.load_state_dict(gradients.state_dict())


def _newest(covered: Cover, prefix: str, ranks: Container[int]) -> dict[str, bytes]:
    """The last blob of each name with a prefix, of some ranks, by name without the prefix."""
    found: dict[str, Entry] = {}
    for step in covered.steps:
        for entry in (entry for rank, entry in step.entries.items() if rank in ranks):
            found |= {name: entry for name in entry.blobs if name.startswith(prefix)}
    return {name.removeprefix(prefix): entry.blob(name) for name, entry in found.items()}


def _owed(session: Session, sync: Sync) -> float:
    """Sum of |residual| over all ranks, in gradients' units."""

    def mine() -> float:
        state = sync.state_dict()
        own = in_gradients(state_in(state.get("update", state)))["own"]
        return sum(float(values.abs().sum()) for values in own.values())

    return sum(agree(session.snapshot_group, mine, doing="replaying the journal"))


def _losses(covered: Cover, step: int, alike: Alike) -> str:
    if not covered.lost:
        return ""
    ranks = ", ".join(str(rank) for rank in covered.lost)
    begun = f" The records of rank {ranks} are lost: its random state is that of step {step}, its place "
    return begun + (
        "another's." if alike.place else f"in the data, too: it is given again what it had since step {step}."
    )

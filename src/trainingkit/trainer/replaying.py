"""After a loss: the steps that the journal holds are taken again on top of a snapshot, without forward or backward.

Each step's messages are decoded into the gradients that the optimizer saw; they are clipped by the norm that was
recorded, and the optimizer and the schedule step as they did. So parameters, buffers, optimizer and schedule are those
of the last complete step, bit for bit; so are each rank's place in the data and its random state. Residuals are the
snapshot's: what later steps still owed is lost, and said.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from trainingkit.core.errors import CheckpointError
from trainingkit.recovery.journal import MARK, Base, Cover, Entry, Scan, Step, cover, row_name, scan, slots
from trainingkit.recovery.names import inner
from trainingkit.recovery.together import agree
from trainingkit.sync.agreed import Agreed
from trainingkit.sync.auto.ladder import Rung
from trainingkit.sync.contract import Sync
from trainingkit.sync.exempt import parameter_names
from trainingkit.sync.listening import of_gradients
from trainingkit.sync.residualstate import in_gradients, state_in
from trainingkit.trainer.buffers import ModelBuffers
from trainingkit.trainer.engine import Rate
from trainingkit.trainer.journalling import not_covered
from trainingkit.trainer.rng import random_state, set_random_state
from trainingkit.trainer.session import Session

NORM_TOLERANCE = 1e-4
"""Of the norm: another number of threads may sum in another order. What is beyond is no rounding."""


@dataclass(frozen=True)
class Replayed:
    """What a replay came to.

    Args:
        step: the last one taken.
        state: this rank's state of the loop after it.
        seconds: it took, reading included.
        text: for a person.
    """

    step: int
    state: dict[str, Any]
    steps: int
    seconds: float
    text: str


@dataclass(frozen=True)
class Loop:
    """The parts of a loop that a replay moves."""

    sync: Sync
    model: nn.Module
    optimizer: torch.optim.Optimizer
    rate: Rate | None
    buffers: ModelBuffers


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
    if covered.why is not None:
        say("journal", f"The journal ends at step {covered.end or step}: {covered.why}.")
    if not covered.steps:
        return None
    why = _unlike(loop.sync, covered)
    if why is not None:
        say("journal", f"{len(covered.steps)} steps of the journal were not replayed: {why}.")
        return None
    owed = _owed(session, loop.sync)
    for each in covered.steps:
        _take(loop, each, session)
    done = _finish(session, loop, covered, dict(state))
    seconds = time.perf_counter() - began
    count = len(covered.steps)
    text = (
        f"Snapshot of step {step}, then {count} step{'s' if count > 1 else ''} replayed from the journal in "
        f"{seconds:.1f} s. Residuals are those of step {step}: what later steps still owed is lost (the snapshot's sum "
        f"of |residual| is {owed:.4g})."
    )
    return Replayed(covered.steps[-1].step, done, count, seconds, text + _losses(covered, step))


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
    for found in scans:
        origin = found.origin
        newer = bool(found.entries) and found.entries[-1].step > base.step
        if origin is not None and origin.run == base.run and newer and origin.world_size != base.world_size:
            say(
                "journal",
                f"The journal is of {origin.world_size} ranks and {base.world_size} go on: its steps after "
                f"{base.step} were not replayed.",
            )
            return


def _unlike(sync: Sync, covered: Cover) -> str | None:
    """Why this synchroniser cannot decode the messages that were kept; None where it can."""
    why, gradients = not_covered(sync), of_gradients(sync)
    if why is not None or gradients is None:
        return f"it does not cover {why}"
    differs = any(step.shared["wire"] != gradients.wire_format for step in covered.steps)
    return "gradients travel otherwise in this run than when it was written" if differs else None


def _take(loop: Loop, step: Step, session: Session) -> None:
    """One step again: gradients, clip, update, schedule."""
    if step.numbers["committed"]:
        _put_gradients(loop, step, session.world_size)
        _clip(loop.model, step)
        for group, lr in zip(loop.optimizer.param_groups, step.numbers["lrs"], strict=True):
            _set_rate(group, float.fromhex(lr))
        loop.optimizer.step()
        if loop.rate is not None:
            loop.rate.step()
    loop.optimizer.zero_grad(set_to_none=True)


def _put_gradients(loop: Loop, step: Step, ranks: int) -> None:
    gradients = of_gradients(loop.sync)
    assert gradients is not None
    found = gradients.mean_again(_kept(step, ranks))
    absent = set(step.shared["absent"])
    for parameter, name in parameter_names(inner(loop.model)).items():
        if name in found and name not in absent:
            gradient = torch.empty_like(parameter)
            gradient.detach().as_strided((gradient.numel(),), (1,)).copy_(found[name])
            parameter.grad = gradient.detach()


def _kept(step: Step, ranks: int) -> list[Agreed]:
    kept: list[Agreed] = []
    for index, (names, way) in enumerate(zip(step.shared["buckets"], step.shared["ways"], strict=True)):
        codec, rung, normalise, scale = way
        messages = [step.blob(row_name(index, row)) for row in range(ranks)]
        rows = torch.frombuffer(bytearray(b"".join(each or b"" for each in messages)), dtype=torch.uint8)
        kept.append(Agreed(tuple(names), Rung(rung, normalise), codec, scale, rows.view(ranks, -1)))
    return kept


def _clip(model: nn.Module, step: Step) -> None:
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    found = torch.nn.utils.get_total_norm(gradients)
    recorded = float.fromhex(step.numbers["norm"])
    if not abs(float(found) - recorded) <= NORM_TOLERANCE * recorded:
        raise CheckpointError(
            f"The journal's gradient of step {step.step} is not the one that was applied.",
            field="journal",
            found=f"a norm of {float(found):.6g}",
            expected=f"{recorded:.6g}",
            next_step=f"Resume with the recipe that wrote it, or leave it out: trainingkit recover RUN --to-step "
            f"{step.step - 1}",
        )
    clip_norm = step.shared["clip_norm"]
    if clip_norm is not None:
        torch.nn.utils.clip_grads_with_norm_(model.parameters(), clip_norm, found.new_tensor(recorded))


def _set_rate(group: dict[str, Any], lr: float) -> None:
    if isinstance(group["lr"], torch.Tensor):
        group["lr"].fill_(lr)
    else:
        group["lr"] = lr


def _finish(session: Session, loop: Loop, covered: Cover, state: dict[str, Any]) -> dict[str, Any]:
    """What is set once, as the last step left it: synchroniser, buffers, random state; returns the loop's state."""
    last, gradients = covered.steps[-1], of_gradients(loop.sync)
    assert gradients is not None
    gradients.catch_up(last.shared["sync"])
    if gradients is not loop.sync:  # it goes where the pilot says when it takes a state
        loop.sync.load_state_dict(gradients.state_dict())
    for name, data in _newest(covered, "buffer/", range(session.world_size)).items():
        buffer = loop.buffers.persistent()[name]
        values = torch.frombuffer(bytearray(data), dtype=torch.uint8).view(buffer.dtype)
        with torch.no_grad():
            buffer.copy_(values.view(buffer.shape))
    if session.rank not in last.own:
        return _without_own(state, next(iter(last.own.values()))["extra"])
    drawn = _newest(covered, "random/", (session.rank,))
    set_random_state({**random_state(), **{name: json.loads(data) for name, data in drawn.items()}})
    return {**state, **last.own[session.rank]["extra"]}


def _newest(covered: Cover, prefix: str, ranks: Container[int]) -> dict[str, bytes]:
    """The last blob of each name with a prefix, of some ranks, by name without the prefix."""
    found: dict[str, Entry] = {}
    for step in covered.steps:
        for entry in (entry for rank, entry in step.entries.items() if rank in ranks):
            found |= {name: entry for name in entry.blobs if name.startswith(prefix)}
    return {name.removeprefix(prefix): entry.blob(name) for name, entry in found.items()}


def _without_own(state: dict[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """The loop's state of a rank whose records are lost: the place in the data of another, which walks alongside."""
    feed = dict(others.get("feed") or {})
    before = state.get("feed") or {}
    if "pass_random" in feed:
        feed["pass_random"] = before.get("pass_random")
    return {**state, **others, "feed": feed or None}


def _owed(session: Session, sync: Sync) -> float:
    """Sum of |residual| over all ranks, in gradients' units."""

    def mine() -> float:
        own = in_gradients(state_in(sync.state_dict()))["own"]
        return sum(float(values.abs().sum()) for values in own.values())

    return sum(agree(session.snapshot_group, mine, doing="replaying the journal"))


def _losses(covered: Cover, step: int) -> str:
    if not covered.lost:
        return ""
    ranks = ", ".join(str(rank) for rank in covered.lost)
    return f" The records of rank {ranks} are lost: its random state is that of step {step}, its place another's."

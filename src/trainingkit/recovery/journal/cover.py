"""Which steps after a snapshot the journal can replay: every file is looked through, and each message found once.

A step is complete when the messages of all its owners are there, in whichever file, and the ranks say the same of it.
Any one rank's files may be missing or damaged: the neighbour keeps the same messages.

Attempts follow each other: one that was resumed at step R after another says so, and its steps are taken after the
other's up to R. So what was done since a snapshot stays covered until another is durable, however often a run dies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from trainingkit.core.errors import CheckpointError
from trainingkit.recovery.journal.segments import Origin, Scan
from trainingkit.recovery.journal.steps import Link, Step, chain, missing, step_at
from trainingkit.recovery.journal.writer import QUEUE_STEPS

LAG_STEPS = QUEUE_STEPS + 1
"""How many steps a rank's file can end before another's when nothing is wrong with it: what may wait in the writer's
queue, and one step, because no rank ends a step for which another has not sent its part. So all end where it does, and
nothing of any rank is lost. A file that ends still earlier, or before damage, has lost records, and so has a rank that
has no readable segment where another's newest records are: no step is taken before each rank's segment has begun
(`JournalWriter.begin`). The others go on without it."""


@dataclass(frozen=True)
class Base:
    """The state that a replay begins from: a snapshot's.

    Args:
        run: id of the run folder, as the snapshot knows it.
        attempt: that made the snapshot.
        world_size: ranks that made it.
    """

    run: str
    attempt: int
    step: int
    world_size: int


@dataclass(frozen=True)
class Cover:
    """What can be replayed after a base.

    Args:
        steps: complete ones, from the base's next on, without a gap.
        attempt: of the run that wrote the last; None where there are none.
        why: what ends them, in words; None where the journal simply ends.
        lost: ranks that have no record of the last step.
        ranks: all that took it.
    """

    steps: tuple[Step, ...]
    attempt: int | None
    why: str | None
    lost: tuple[int, ...]
    ranks: tuple[int, ...] = ()

    @property
    def end(self) -> int | None:
        """The last step covered."""
        return self.steps[-1].step if self.steps else None


def cover(base: Base, scans: Iterable[Scan]) -> Cover:
    """The steps after `base`, up to the newest attempt that leads on from it and completed any."""
    attempts = _by_attempt(base, list(scans))
    tried = Cover((), None, None, ())
    for attempt in sorted(attempts, reverse=True):
        route = _route(base, attempt, attempts)
        covered = _ending_well(_along(base, route, attempts)) if route else tried
        if covered.steps:
            return covered
        tried = covered if tried.why is None else tried
    return tried


def _by_attempt(base: Base, scans: Sequence[Scan]) -> dict[int, list[Scan]]:
    """The segments that belong to the base's run, and those that do not say whose they are, by their place."""
    attempts: dict[int, list[Scan]] = {}
    for scan in scans:
        if scan.origin is not None and _belongs(scan.origin, base):
            attempts.setdefault(scan.slot.attempt, []).append(scan)
    for scan in scans:
        if scan.origin is None and scan.slot.attempt in attempts:
            attempts[scan.slot.attempt].append(scan)
    return attempts


def _belongs(origin: Origin, base: Base) -> bool:
    return origin.run == base.run and origin.world_size == base.world_size


@dataclass(frozen=True)
class _Leg:
    """The steps of one attempt between two: after `begin`, up to `end` or its own end."""

    attempt: int
    begin: int
    end: int | None


def _route(base: Base, attempt: int, attempts: Mapping[int, Sequence[Scan]]) -> list[_Leg]:
    """How the steps up to an attempt's end follow from the base; nothing where they do not."""
    legs: list[_Leg] = []
    end: int | None = None
    while attempt != base.attempt:
        first = _taken_up(attempt, attempts.get(attempt, ()))
        if first is None or first.base_step < base.step:
            return []
        legs.insert(0, _Leg(attempt, first.base_step, end))
        attempt, end = first.base_attempt, first.base_step
    return [_Leg(attempt, base.step, end), *legs]


def _taken_up(attempt: int, scans: Sequence[Scan]) -> Origin | None:
    """Of the segments that an attempt began with the state of an earlier one, any rank's."""
    origins = [scan.origin for scan in scans if scan.origin is not None and scan.origin.base_attempt < attempt]
    return min(origins, key=lambda origin: origin.base_step, default=None)


def _along(base: Base, route: Sequence[_Leg], attempts: Mapping[int, Sequence[Scan]]) -> Cover:
    """All steps of a route; none where a leg does not reach the next, or the last has none."""
    steps: list[Step] = []
    part = Cover((), None, None, ())
    for leg in route:
        part = _cover_leg(replace(base, step=leg.begin), leg, attempts.get(leg.attempt, ()))
        if leg.end is not None and leg.begin + len(part.steps) < leg.end:
            return Cover((), None, part.why, ())
        steps += part.steps
    return replace(part, steps=tuple(steps)) if part.steps else part


def _cover_leg(base: Base, leg: _Leg, scans: Sequence[Scan]) -> Cover:
    chains = {rank: chain(base.step, [s for s in scans if s.slot.rank == rank]) for rank in range(base.world_size)}
    last = _last_of_all(base, scans) if leg.end is None else leg.end
    problems = [f"rank {s.slot.rank}'s {s.slot.path.name} is damaged {s.problem}" for s in scans if s.problem]
    steps: list[Step] = []
    why: str | None = None
    for number in range(base.step + 1, last + 1):
        step = step_at(number, leg.attempt, chains)
        why = missing(step, base.world_size) if step is not None else f"step {number} is in no file"
        if step is None or why is not None:
            break
        steps.append(step)
    if why is not None and problems:
        why = f"{why}; {problems[0]}"
    if why is None and leg.end is None:
        why = _beyond(last, chains)
    ranks = tuple(chains)
    return Cover(tuple(steps), leg.attempt if steps else None, why, _without(steps, ranks), ranks)


def _beyond(last: int, chains: Mapping[int, Mapping[int, Link]]) -> str | None:
    """That some ranks' records go on after a step, and how far; None where none do."""
    more = max(max(links, default=last) for links in chains.values()) - last
    ending = ", ".join(str(rank) for rank, links in chains.items() if last + 1 not in links)
    if more <= 0:
        return None
    return f"rank {ending}'s records end there; other ranks' files hold {more} step{'s' if more > 1 else ''} more"


def _last_of_all(base: Base, scans: Sequence[Scan]) -> int:
    """The last step of which every rank that has not lost records has one."""
    readable = [scan for scan in scans if scan.origin is not None]
    place = max((scan.slot.first_step for scan in readable if scan.entries), default=None)
    ends = dict.fromkeys(range(base.world_size), base.step)
    for scan in readable:
        ends[scan.slot.rank] = max(ends[scan.slot.rank], _end_of(scan))
    newest = max(ends.values())
    lost = {rank for rank in ends if place is not None and _has_lost(rank, place, readable)}
    whole = [end for rank, end in ends.items() if end >= newest - LAG_STEPS and rank not in lost]
    return min(whole, default=newest)


def _end_of(scan: Scan) -> int:
    """The last step that a segment tells to have been written: its own, or that before it."""
    return scan.entries[-1].step if scan.entries else scan.slot.first_step - 1


def _has_lost(rank: int, place: int, readable: Sequence[Scan]) -> bool:
    """Whether a rank's segment where the newest records are is gone, or ends with what a kill does not leave."""
    own = [scan for scan in readable if (scan.slot.rank, scan.slot.first_step) == (rank, place)]
    return not own or any(scan.problem is not None and not scan.cut for scan in own)


def check_reaches(covered: Cover, base: Base, step: int) -> Cover:
    """The part of a cover that ends with `step`.

    Raises:
        CheckpointError: the journal does not reach so far.
    """
    kept = until(covered, step)
    if step != (kept.end or base.step):
        reach = f"steps {base.step} to {covered.end}" if covered.end else f"step {base.step} alone"
        if any(not each.ends for each in covered.steps):
            reach = f"step {base.step}, or one that ends a round, up to {covered.end}"
        raise CheckpointError(
            "No whole snapshot and journal lead to this step.",
            field="--to-step",
            found=step,
            expected=f"{reach}, after the snapshot of step {base.step}" + (f" ({covered.why})" if covered.why else ""),
            next_step="List what is covered with: trainingkit recover RUN --inspect",
        )
    return kept


def until(covered: Cover, step: int) -> Cover:
    """The steps of a cover up to one, or to the last before it with which a replay can end; all where none is later."""
    if step >= (covered.end or step):
        return covered
    return _ending_well(_cut(covered, tuple(each for each in covered.steps if each.step <= step), None))


def _ending_well(covered: Cover) -> Cover:
    """Without the steps after the last one with which a replay can end."""
    count = len(covered.steps)
    while count and not covered.steps[count - 1].ends:
        count -= 1
    return covered if count == len(covered.steps) else _cut(covered, covered.steps[:count], covered.why)


def _cut(covered: Cover, kept: tuple[Step, ...], why: str | None) -> Cover:
    return replace(
        covered,
        steps=kept,
        attempt=kept[-1].attempt if kept else None,
        why=why,
        lost=_without(kept, covered.ranks),
    )


def _without(steps: Sequence[Step], ranks: Iterable[int]) -> tuple[int, ...]:
    """Ranks that have no record of the last step."""
    return tuple(rank for rank in ranks if steps and rank not in steps[-1].entries)

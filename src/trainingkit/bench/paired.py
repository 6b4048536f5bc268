"""Turns of contenders that alternate inside one set of processes, so that the machine's drift hits all alike.

A round is one turn of each contender that attends, in an order shuffled anew each round. Ratios are taken within a
round only. The core (reference, its twin for A/A, and what is judged) attends every round; guests, which may be
slow, attend as long as each has had no more than its share of time. All of it is computed from the turns' seconds
alone, so ranks that agree on those decide alike without asking each other.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from trainingkit.bench.stats import Interval, median_interval

AA_TOLERANCE = 0.02


@dataclass(frozen=True)
class Plan:
    """Who takes turns, and how long.

    Args:
        reference: whose turn of the same round the others are divided by.
        twin: a second copy of the reference, for A/A.
        judged: contenders of every round.
        guests: contenders that share as much time as the core takes.
        rounds: at least so many; then more while A/A is not within its tolerance.
        most_rounds, budget_s: where it ends in any case; seconds are those of the turns.
        guest_turns: a guest gets at least so many turns, whatever they cost.
    """

    reference: str
    twin: str
    judged: tuple[str, ...]
    guests: tuple[str, ...] = ()
    rounds: int = 12
    most_rounds: int = 200
    budget_s: float = 120.0
    guest_turns: int = 3
    seed: int = 0

    @property
    def core(self) -> tuple[str, ...]:
        """Who attends every round."""
        return (self.reference, self.twin, *self.judged)


@dataclass
class Turns:
    """Seconds of each turn, by contender and round; and why a contender takes no more."""

    seconds: dict[str, dict[int, float]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    rounds: int = 0

    def add(self, name: str, round_number: int, seconds: float) -> None:
        """Note a turn."""
        self.seconds.setdefault(name, {})[round_number] = seconds

    def spent_s(self, name: str) -> float:
        """All seconds of one contender."""
        return sum(self.seconds.get(name, {}).values())

    def total_s(self) -> float:
        """All seconds of all contenders."""
        return sum(self.spent_s(name) for name in self.seconds)

    def ratios(self, name: str, reference: str) -> list[float]:
        """seconds(name) / seconds(reference) of each round that both attended, in order."""
        own, other = self.seconds.get(name, {}), self.seconds.get(reference, {})
        return [own[number] / other[number] for number in sorted(own) if number in other]

    def ratio(self, name: str, reference: str) -> Interval:
        """Median ratio with bounds; above 1 is slower than the reference."""
        return median_interval(self.ratios(name, reference))

    def kept_share(self, name: str, reference: str) -> Interval:
        """Median of the inverse ratio: which share of the reference's speed is kept."""
        return median_interval([1.0 / ratio for ratio in self.ratios(name, reference)])

    def median_s(self, name: str) -> float:
        """Median seconds of a turn."""
        return median_interval(list(self.seconds.get(name, {}).values())).value


class ContenderFailed(Exception):
    """Raised by a turn on all ranks alike: this contender cannot go on; the others can."""


def measure(
    plan: Plan,
    take_turn: Callable[[str], float],
    *,
    after_round: Callable[[Turns], None] = lambda turns: None,
) -> Turns:
    """Take turns until the plan is done.

    Args:
        take_turn: runs one turn of a contender on all ranks and returns its seconds, the same on all ranks.
        after_round: called with what is known so far, for progress.

    Returns:
        All turns. One that raised `ContenderFailed` is not in them, and its contender is in `failed`.
    """
    turns = Turns()
    while goes_on(plan, turns):
        for name in order(attending(plan, turns), turns.rounds, plan.seed):
            try:
                turns.add(name, turns.rounds, take_turn(name))
            except ContenderFailed as error:
                turns.failed[name] = str(error)
        turns.rounds += 1
        after_round(turns)
    return turns


def attending(plan: Plan, turns: Turns) -> list[str]:
    """Who takes a turn in the next round: the core, and each guest that has had no more than its share of time."""
    core_s = sum(turns.spent_s(name) for name in plan.core)
    share_s = core_s / max(1, len(plan.guests))
    guests = [
        name
        for name in plan.guests
        if len(turns.seconds.get(name, {})) < plan.guest_turns or turns.spent_s(name) < share_s
    ]
    return [name for name in (*plan.core, *guests) if name not in turns.failed]


def order(names: list[str], round_number: int, seed: int) -> list[str]:
    """The names shuffled by (seed, round): the same on every rank, another one each round."""
    shuffled = sorted(names)
    random.Random(f"{seed}/{round_number}").shuffle(shuffled)
    return shuffled


def goes_on(plan: Plan, turns: Turns) -> bool:
    """Whether another round is due."""
    if turns.rounds >= plan.most_rounds or {plan.reference, plan.twin} & set(turns.failed):
        return False
    if turns.rounds < plan.rounds and turns.rounds < plan.guest_turns:
        return True
    if turns.total_s() >= plan.budget_s:
        return False
    return turns.rounds < plan.rounds or not is_quiet(aa(plan, turns))


def aa(plan: Plan, turns: Turns) -> Interval:
    """The reference against its own twin: what the machine shows where there is no difference."""
    return turns.ratio(plan.twin, plan.reference)


def is_quiet(interval: Interval) -> bool:
    """True when an A/A interval lies within 1.00 +- 0.02: the machine is quiet enough to tell contenders apart."""
    return interval.within(1.0 - AA_TOLERANCE, 1.0 + AA_TOLERANCE)

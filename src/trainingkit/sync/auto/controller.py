"""Which rung, from when on? A search when the link is new, then rest until something has changed.

    search   some steps on a rung give its time; a forecast gives that of all others. The least lossy rung that hides is
             taken, after those that may hide as well have been tried. Plain is tried where it may be as fast. Ranks
             train apart only where every rung of gradients is clearly slower.
    rest     nothing moves, unless the link or the computing changed (search again), a guard complains (a rung back), or
             the run has proved stable (rungs beyond the published limits are allowed).

Fed with what all ranks agreed on, of operations that IEEE 754 rounds in one way only, so that every rank decides alike
without a message.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from trainingkit.core.errors import CheckpointError
from trainingkit.sync.auto.epoch import RECENT, SAMPLES, Epoch, mbit
from trainingkit.sync.auto.forecast import Forecast, Link, Load, pick_of
from trainingkit.sync.auto.guards import Guards
from trainingkit.sync.auto.ladder import PLAIN, Rung, start_within, within_limits
from trainingkit.sync.auto.moves import Move
from trainingkit.sync.auto.reckoning import Reckoning
from trainingkit.sync.auto.seen import Seen
from trainingkit.sync.auto.trials import SLACK, Known, apart_to_try, to_try

HOLD = 0.05
"""Without a search a more lossy rung must be this much shorter than the present one."""
APART_WORTH = 0.2
"""Training apart is another algorithm, which needs more steps for the same loss: about so many more, in a small decoder
(docs/decisions/0014-every-in-auto.md). It begins where every rung of gradients makes steps longer by this much."""
ASKED_WORTH = 0.05
"""The same where a person has said how many steps ranks may train apart, so that speed is what is wanted."""
STAY_SHARE = 0.5
"""It ends where a rung of gradients makes steps longer by less than this share of that."""
FEWEST_ROUNDS = 2
"""That tell what a rung takes on which ranks train apart."""
SETTLE_STEPS = 2
"""After a move: one on its way yet, and one that meets cold buffers."""
MOST_TRIES = 4
REST_STEPS = 50
"""After a search what changed leads to another one only if the step has become longer (`HURTS`); else it waits."""
STABLE_STEPS = 200
BARRED_STEPS = 500


class Controller:
    """Picks the rung.

    Args:
        ladder: from the least lossy on.
        shared: which part of the codec's seconds computing loses: 1 on a CPU, 0 on a GPU.
        max_ratio, min_density: limits until the run has proved stable.
        apart_worth: by how much the steps of gradients' rungs must be longer before ranks train apart.
        try_apart: whether a rung apart is measured before it is given up: only that shows what bytes cost here.

    Raises:
        ConfigError: the limits leave no rung.
    """

    def __init__(
        self,
        ladder: Sequence[Rung],
        *,
        shared: float,
        max_ratio: float,
        min_density: float,
        apart_worth: float = APART_WORTH,
        try_apart: bool = False,
    ) -> None:
        self._apart_worth = apart_worth
        self._try_apart = try_apart
        self.ladder = tuple(ladder)
        self._first = self.index = self.ladder.index(start_within(max_ratio=max_ratio, min_density=min_density))
        self._reckoning = Reckoning(ladder, shared=shared)
        self._limits = {"max_ratio": max_ratio, "min_density": min_density}
        self._epoch = Epoch()
        self._guards = Guards()
        self._skip = SETTLE_STEPS
        self._steady = 0
        self._lifted = False
        self._settled_at = 0
        self._barred: dict[int, int] = {}
        self._gradients = self.index
        self._together = False

    @property
    def rung(self) -> Rung:
        """What is used now."""
        return self.ladder[self.index]

    @property
    def loads(self) -> Callable[[], Sequence[Load] | None]:
        """Tells the rungs' loads; None while the buckets are not known."""
        return self._reckoning.loads

    @loads.setter
    def loads(self, loads: Callable[[], Sequence[Load] | None]) -> None:
        self._reckoning.loads = loads

    def wait(self, steps: int) -> None:
        """Look away for so many steps more: they do not travel on the rung yet."""
        self._skip += steps

    @property
    def _wanted_samples(self) -> int:
        return max(FEWEST_ROUNDS, SAMPLES // self.rung.every) if self.rung.apart else SAMPLES

    @property
    def settled(self) -> bool:
        """Whether the search is over."""
        return self._epoch.settled

    def observe(self, step: int, seen: Seen) -> Move | None:
        """Take in one agreed step on the present rung; the move that follows from it, if any.

        Args:
            step: steps so far.
            seen: where ranks train apart, times and rate come once a round, as those of its mean step.
        """
        self._unbar(step)
        self._steady = self._steady + 1 if seen.committed else 0
        if self._skip > 0:
            self._skip -= 1
            return None
        if move := self._guarded(step, seen):
            return move
        if seen.rate <= 0 or seen.window_s <= 0:
            return None
        epoch = self._epoch
        if epoch.take(seen):
            return self._anew(step) if epoch.has_changed and (epoch.hurts or not self._resting(step)) else None
        if epoch.settled:
            return self._rest(step) if len(epoch.samples) == RECENT else None
        return self._search(step) if len(epoch.samples) >= self._wanted_samples else None

    def _unbar(self, step: int) -> None:
        """Where a rung may be used again, it is looked for anew."""
        barred = {index: until for index, until in self._barred.items() if until > step}
        if len(barred) < len(self._barred):
            self._epoch.settled, self._epoch.tries = False, 0
        self._barred = barred

    def _guarded(self, step: int, seen: Seen) -> Move | None:
        """Away from a rung that the limits forbid, or a rung back where a guard complains."""
        if not (self._lifted or self._allowed(self.index)):
            return self._move(step, self._within(self.index), "beyond the limits, which have become tighter")
        complaint = self._guards.complaint(seen) if seen.committed else None
        if complaint is None:
            return None
        self._steady, self._guards = 0, Guards()
        return self._back(step, complaint) if self.index > 0 else None

    def bar_apart(self, step: int, reason: str) -> Move:
        """Ranks never train apart in this run. The move in place of one that was to lead there, not carried out yet.

        To the rung of gradients that was used before it, or to a less lossy one where a guard complained of that.
        """
        self._together = True
        below = min(self._barred, default=len(self.ladder))
        usable = [i for i in range(below) if self._allowed(i) or (self._lifted and not self._is_closed(i))]
        less = max((i for i in usable if i < self.index), default=0)
        return self._move(step, self._gradients if self._gradients in usable else less, reason)

    def forecasts(self) -> list[Forecast] | None:
        """By rung, as of now; None while too little is known."""
        return self._reckoning.forecasts(self._epoch, self.index)

    def seconds_on(self, link: Link) -> list[float] | None:
        """A step's seconds by rung on another link, by forecast alone; infinite where the limits forbid the rung."""
        found = self._reckoning.on(link, self._epoch, self.index)
        if found is None:
            return None
        return [told.step_s if self._allowed(index) else math.inf for index, told in enumerate(found)]

    def choose(self, times: Sequence[float | None]) -> int:
        """The least lossy rung that hides; see `APART_WORTH` and `STAY_SHARE`.

        Args:
            times: seconds of a step by rung; None: not to be used.
        """
        worth = self._apart_worth * (STAY_SHARE if self.rung.apart else 1.0)
        return pick_of(times, [rung.apart for rung in self.ladder], slack=SLACK, worth=worth)

    def state_dict(self) -> dict[str, Any]:
        """JSON: where the ladder stands; what was measured is measured again."""
        return {
            "rung": str(self.rung),
            "steady": self._steady,
            "lifted": self._lifted,
            "together": self._together,
            "barred": [[str(self.ladder[index]), until] for index, until in self._barred.items()],
            "guards": self._guards.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue on that rung, or begin anew from an empty state; nothing that was seen so far counts.

        Raises:
            CheckpointError: the ladder has no such rung.
        """
        names = [str(rung) for rung in self.ladder]
        wanted = state.get("rung", str(self.ladder[self._first]))
        if wanted not in names:
            raise CheckpointError(
                "The snapshot's controller stood on a rung that this version does not have.",
                field="sync.pilot.controller.rung",
                found=wanted,
                expected="one of " + ", ".join(names),
                next_step="Resume with a codec that is named, for example --set sync.codec='all|int4'.",
            )
        self._steady = state.get("steady", 0)
        self._lifted = state.get("lifted", False)
        self._together = state.get("together", False)
        self.index = names.index(wanted)
        self._guards = Guards(**state.get("guards", {}))
        self._barred = {names.index(name): int(until) for name, until in state.get("barred", []) if name in names}
        self._epoch = Epoch()
        self._reckoning.forget()
        self._settled_at = 0
        self._skip = SETTLE_STEPS

    def _search(self, step: int) -> Move | None:
        epoch = self._epoch
        epoch.measured[self.index] = epoch.step_s()
        times = self._times(step)
        if times is None:
            return None
        target = self.choose(times)
        if epoch.tries < MOST_TRIES:
            target = self._to_try(times, target)
        if target != self.index and (target in epoch.measured or epoch.tries < MOST_TRIES):
            epoch.tries += target not in epoch.measured
            if target in epoch.measured:
                self._settle(step)
            return self._move(step, target, self._why(times, target))
        self._settle(step)
        return None

    def _to_try(self, times: Sequence[float | None], target: int) -> int:
        known = Known(self.ladder, self.index, times, self._epoch.measured)
        chosen, found = to_try(known, target), self.forecasts()
        if chosen != target or target not in self._epoch.measured or not self._try_apart or found is None:
            return chosen
        return apart_to_try(known, target, found)

    def _rest(self, step: int) -> Move | None:
        epoch = self._epoch
        now_s = epoch.measured[self.index] = epoch.step_s()
        times = self._times(step)
        plain_s = times[0] if times is not None and self.ladder[0].codec == PLAIN else None
        if plain_s is not None and self.index != 0 and 0 not in epoch.measured and now_s > plain_s * (1.0 + HOLD):
            epoch.settled, epoch.tries = False, 0
            return None
        if plain_s is not None and self.index != 0 and now_s > plain_s * (1.0 + SLACK):
            return self._move(step, 0, f"a step takes {now_s:.3g} s here and {plain_s:.3g} s with plain DDP")
        if times is None or self._lifted or self._steady < STABLE_STEPS:
            return None
        self._lifted = True
        target = self.choose(times)
        if target > self.index and not within_limits(self.ladder[target], **self._limits):
            epoch.settled, epoch.tries = False, 0
            return self._move(step, target, f"{STABLE_STEPS} steady steps: {self._why(times, target)}")
        return None

    def _times(self, step: int) -> list[float | None] | None:
        """Seconds of a step by rung: measured where it was tried since the last change, else forecast."""
        found = self.forecasts()
        if found is None:
            return None
        here = self._epoch.measured.get(self.index)
        bias = here / found[self.index].step_s if here is not None else 1.0
        barred = min(self._barred, default=len(self.ladder))
        times: list[float | None] = []
        for index in range(len(self.ladder)):
            allowed = index == self.index or (self._allowed(index) and index < barred)
            times.append(self._epoch.measured.get(index, found[index].step_s * bias) if allowed else None)
        return times

    def _within(self, index: int) -> int:
        """The last rung up to this one that is within the limits."""
        return next((at for at in range(index, -1, -1) if self._is_within(at)), self._first)

    def _is_within(self, index: int) -> bool:
        """Whether a run that has proved nothing yet may use the rung."""
        return not self._is_closed(index) and within_limits(self.ladder[index], **self._limits)

    def _is_closed(self, index: int) -> bool:
        """Whether ranks train apart on it, and must not."""
        return self._together and self.ladder[index].apart

    def _allowed(self, index: int) -> bool:
        return self._is_within(index) or (self._steady >= STABLE_STEPS and not self._is_closed(index))

    def _resting(self, step: int) -> bool:
        """Whether the last search ended a short while ago."""
        return self._epoch.settled and step - self._settled_at < REST_STEPS

    def _settle(self, step: int) -> None:
        self._epoch.settled = True
        self._settled_at = step

    def _anew(self, step: int) -> Move | None:
        """Begin the search again, from what the odd steps showed."""
        changed = self._epoch.changed()
        self._epoch = Epoch(samples=self._epoch.odd, tries=0 if self._epoch.settled else self._epoch.tries)
        times = self._times(step)
        if times is None:
            return None
        target = self.choose(times)
        here = times[self.index]
        if target > self.index and here is not None and here <= min(s for s in times if s is not None) * (1.0 + HOLD):
            target = self.index
        if target == self.index:
            self._settle(step)
            return None
        self._epoch.tries += 1
        return self._move(step, target, f"{changed}: {self._why(times, target)}")

    def _back(self, step: int, complaint: str) -> Move:
        """A rung back, to one within the limits where the present one is; that one is barred for a while."""
        self._barred[self.index] = step + BARRED_STEPS
        self._settle(step)
        within = within_limits(self.rung, **self._limits)
        less = [i for i in range(self.index) if self._is_within(i) or not (within or self._is_closed(i))]
        return self._move(step, max(less, default=0), f"{complaint}: a rung back")

    def _move(self, step: int, target: int, reason: str) -> Move:
        self._reckoning.leave(self._epoch, self.index)
        self._gradients = self._gradients if self.rung.apart else self.index
        self.index = target
        self._lifted = self._lifted or not self._is_within(target)
        self._epoch.samples, self._epoch.odd = [], []
        self._skip = SETTLE_STEPS
        return Move(step, self.rung, reason)

    def _why(self, times: Sequence[float | None], target: int) -> str:
        link = self._epoch.link()
        here, there = times[self.index], times[target]
        if here is None or there is None or link is None:
            return f"{self.ladder[target]} is the least lossy rung that hides"
        known = "measured" if target in self._epoch.measured else "forecast"
        if there > here and target < self.index:
            known = f"less lossy, and {known}"
        return (
            f"{self.ladder[target]} is {known} at {there:.3g} s a step, {self.rung} takes {here:.3g} s; "
            f"the link gives {mbit(link.bytes_per_s)}"
        )

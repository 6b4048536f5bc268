"""Adaptive values: each bucket's quantiser, chosen from what every rank has decoded, so that no message is needed.

Some steps are looked at (`looking`); every `RENEW_STEPS` the choice is made anew (`values.choose`), and at once when
the rung or the buckets are others. What is looked at is the agreed mean, and each operation has one result, so all
ranks choose alike, and a replay or a continued run does again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from typing import Any

from trainingkit.core.logging import LOG
from trainingkit.sync.auto.course import LEARN_STEPS
from trainingkit.sync.auto.ladder import Rung
from trainingkit.sync.auto.values import CANDIDATES, Judged, Look, adapts, choose, expected, total

LOOK_EVERY = 8
FIRST_STEPS = 10
RENEW_STEPS = 50
FADE = 0.5
"""Of what was seen before the last choice, when the next is made."""


@dataclass(frozen=True)
class Place:
    """What tells a bucket's matrices from those of others.

    Args:
        name: of their first parameter.
        elements: of all.
    """

    name: str
    elements: int


NOWHERE = Place("", 0)
"""Of a bucket without matrices."""


@dataclass(frozen=True)
class Choice:
    """What each bucket travels in from now on.

    Args:
        step: exchanges that were made before it; it counts from the next on.
        codecs: by the name of a bucket's first matrix.
        reason: a sentence that a person can check.
    """

    step: int
    codecs: dict[str, str]
    reason: str


class Adaptive:
    """The codec of each bucket. Where `active` is false, that of the rung, always.

    Attributes:
        on_choice: called on every rank when buckets change.
    """

    def __init__(self, *, active: bool) -> None:
        self.active = active
        self.on_choice: Callable[[Choice], None] = _log
        self._rung: Rung | None = None
        self._chosen: dict[Place, str] = {}
        self._known: dict[Place, Look] = {}
        self._normalised = False
        self._since = 0
        self._fresh: dict[Place, Look] = {}

    def codec(self, place: Place, rung: Rung) -> str:
        """What a bucket travels in. One that no choice was made for takes the fewest bytes that any does."""
        if rung != self._rung or not self._chosen:
            return rung.codec
        return self._chosen.get(place) or min(self._chosen.values(), key=CANDIDATES.index)

    def looks(self, step: int) -> bool:
        """Whether the step is looked at that comes after `step` others."""
        return self.active and step % LOOK_EVERY == 0 and step >= self._since + LEARN_STEPS

    def look(self, place: Place, look: Look) -> None:
        """What a bucket's agreed values look like, in the wire's unit. Called on the queue's last thread."""
        self._fresh[place] = look

    def over(
        self, step: int, rung: Rung, following: Rung, costs: dict[Place, dict[str, int]], *, committed: bool
    ) -> None:
        """A step is over, and every bucket is back; all ranks call it alike.

        Args:
            step: how many there were.
            rung: on which it travelled.
            following: on which the next one will.
            costs: bytes of one message by codec, for each bucket of the step.
        """
        if rung.normalise != self._normalised:
            self._known, self._normalised, self._since = {}, rung.normalise, step - 1
        elif committed:
            for place, look in self._fresh.items():
                self._known[place] = self._known.get(place, Look()) + look
        self._fresh = {}
        if self._is_due(step, following, costs):
            self._choose(step, following, costs)

    def describe(self) -> dict[str, Any]:
        """How many buckets travel in what; nothing where it is off."""
        counts: dict[str, int] = {}
        for codec in self._chosen.values():
            counts[codec] = counts.get(codec, 0) + 1
        return {"adaptive": counts} if self.active else {}

    def state_dict(self) -> dict[str, Any]:
        """JSON; empty where it is off."""
        if not self.active:
            return {}
        return {
            "rung": [self._rung.codec, self._rung.normalise] if self._rung else None,
            "normalised": self._normalised,
            "since": self._since,
            "chosen": [[place.name, place.elements, codec] for place, codec in self._chosen.items()],
            "known": [[place.name, place.elements, *astuple(look)] for place, look in self._known.items()],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue with those choices; a state without any begins anew."""
        if not self.active:
            return
        rung = state.get("rung")
        self._rung = Rung(str(rung[0]), bool(rung[1])) if rung else None
        self._normalised = bool(state.get("normalised", False))
        self._since = int(state.get("since", 0))
        self._chosen = {Place(name, elements): codec for name, elements, codec in state.get("chosen", [])}
        self._known = {Place(name, elements): Look(*sums) for name, elements, *sums in state.get("known", [])}
        self._fresh = {}

    def _is_due(self, step: int, rung: Rung, costs: dict[Place, dict[str, int]]) -> bool:
        if not costs or not adapts(rung) or rung.normalise != self._normalised:
            return False
        if step < FIRST_STEPS or not self._seen(costs):
            return False
        return step % RENEW_STEPS == 0 or rung != self._rung or costs.keys() != self._chosen.keys()

    def _choose(self, step: int, rung: Rung, costs: dict[Place, dict[str, int]]) -> None:
        """Those of which nothing but zeros was seen keep the rung's codec."""
        seen = self._seen(costs)
        judged = [Judged.of(self._known[place], place.elements, costs[place]) for place in seen]
        before = {place: self.codec(place, rung) for place in costs}
        found = choose(judged, rung.codec, [before[place] for place in seen])
        self._rung = rung
        self._known = {place: self._known[place].faded(FADE) for place in seen}
        self._chosen = {**dict.fromkeys(costs, rung.codec), **dict(zip(seen, found, strict=True))}
        if self._chosen != before:
            named = {place.name: codec for place, codec in self._chosen.items()}
            self.on_choice(Choice(step, named, _why(judged, found, rung.codec)))

    def _seen(self, costs: dict[Place, dict[str, int]]) -> list[Place]:
        return [place for place in costs if self._known.get(place, Look()).energy > 0]


def _why(judged: Sequence[Judged], found: Sequence[str], base: str) -> str:
    same = [base] * len(judged)
    error = expected(judged, found) / expected(judged, same)
    size = total(judged, found) / total(judged, same)
    return f"{error:.0%} of the expected error of {base} in all buckets, in {size:.1%} of its bytes"


def _log(choice: Choice) -> None:
    LOG.info("from step %d on buckets travel in numbers of their own: %s", choice.step + 1, choice.reason)

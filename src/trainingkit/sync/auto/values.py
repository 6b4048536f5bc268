"""In which numbers should each bucket travel? The same bytes in all, spent where they save most error.

A bucket's values are judged by their mean square and by two figures of their shape. The crest is the squared peak of a
block of 64 over its mean square: 2.9 where values are spread evenly, 7 for a bell, 12 for Laplace's, 64 where one value
is all there is. The spread is the squared mean magnitude of a block of 256 over its mean square: 0.75, 0.64, 0.5, 0.
The error of a quantiser with the peak on its last level follows from the crest c alone where its levels are fine:

    mean squared error / mean square  =  c / (12 L^2)            levels -L .. L; L = 127: 5.2e-6 c

and hardly depends on anything else where they are not; that of `int2` follows from the spread. `ERRORS` holds what it
came to in generalised normal distributions (exponents 0.25 to 4) and products of normal and log-normal numbers.

Buckets begin in the fewest bytes; then whoever saves most error per byte goes up, while the budget lasts. That is the
least error where the errors by bytes are convex. No torch here; only operations that IEEE 754 rounds in one way.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from trainingkit.codec import parse
from trainingkit.core.errors import ConfigError
from trainingkit.sync.auto.ladder import Rung

INT2, INT3, INT4 = "all|int2(block=256)", "all|int3(block=64)", "all|int4(block=64)"
CRESTS = (2.9, 4.7, 6.9, 9.1, 12.0, 17.0, 23.4, 32.3, 42.7, 51.6, 60.0, 64.0)
SPREADS = (0.751, 0.708, 0.638, 0.587, 0.502, 0.425, 0.303, 0.217, 0.13, 0.069, 0.02, 0.004)
"""Of the same distributions as `CRESTS`."""
ERRORS = {
    INT2: (0.118, 0.149, 0.19, 0.228, 0.275, 0.346, 0.435, 0.55, 0.67, 0.785, 0.858, 0.87),
    INT3: (0.0267, 0.0429, 0.0632, 0.082, 0.105, 0.12, 0.12, 0.104, 0.069, 0.045, 0.0135, 0.0005),
    INT4: (0.00495, 0.0079, 0.0116, 0.0153, 0.0205, 0.0268, 0.031, 0.0315, 0.0228, 0.0163, 0.0053, 0.0002),
    "all|int8(block=64)": (
        *(1.5e-5, 2.4e-5, 3.6e-5, 4.7e-5, 6.25e-5, 8.8e-5),
        *(1.21e-4, 1.64e-4, 1.85e-4, 1.9e-4, 1.05e-4, 1.5e-5),
    ),
    "all|fp8(block=64, format=e4m3)": (
        *(6.3e-4, 6.6e-4, 6.3e-4, 6.05e-4, 5.6e-4, 5.2e-4),
        *(4.45e-4, 3.5e-4, 2.4e-4, 1.4e-4, 5e-5, 8e-6),
    ),
    "all|fp8(block=64, format=e5m2)": (
        *(2.5e-3, 2.6e-3, 2.5e-3, 2.4e-3, 2.3e-3, 2.05e-3),
        *(1.77e-3, 1.38e-3, 9.3e-4, 5.4e-4, 1.8e-4, 1.2e-5),
    ),
}
"""By codec, for each of these distributions: mean squared error over mean square."""
DECODED_SPREADS = {
    INT2: (0.626, 0.598, 0.551, 0.521, 0.475, 0.435, 0.373, 0.334, 0.256, 0.232, 0.112, 0.022),
    INT3: (0.713, 0.656, 0.561, 0.485, 0.374, 0.28, 0.177, 0.113, 0.066, 0.035, 0.012, 0.004),
    INT4: (0.744, 0.698, 0.623, 0.566, 0.472, 0.385, 0.255, 0.17, 0.092, 0.049, 0.015, 0.004),
}
"""What is left of `SPREADS` in decoded values: small ones became zeros."""
CANDIDATES = tuple(ERRORS)
"""From the fewest bytes on."""
LEAST_GAIN = 0.03
"""A choice that saves less of the expected error than this share is not worth a change."""


@dataclass(frozen=True)
class Look:
    """What values of a bucket look like: sums over a sample.

    Args:
        energy: of squares.
        peaks: over blocks of 64, of 64 times the squared largest magnitude.
        spread: over blocks of 256, of the squared sum of magnitudes over 256.
        count: of values.
    """

    energy: float = 0.0
    peaks: float = 0.0
    spread: float = 0.0
    count: float = 0.0

    def __add__(self, other: Look) -> Look:
        """Of both samples."""
        return Look(
            self.energy + other.energy, self.peaks + other.peaks, self.spread + other.spread, self.count + other.count
        )

    def as_coded(self, codec: str) -> Look:
        """With the peaks and the spread of what was coded, as the decoded values tell them.

        Args:
            codec: in which they travelled. All but `int2` keep a block's peak.
        """
        if codec not in DECODED_SPREADS or not self.energy > 0:
            return self
        found, knots = self.spread / self.energy, DECODED_SPREADS[codec][::-1]
        spread = self.energy * between(found, knots, SPREADS[::-1])
        if codec != INT2:
            return replace(self, spread=spread)
        return replace(self, peaks=self.energy * between(found, knots, CRESTS[::-1]), spread=spread)

    def faded(self, share: float) -> Look:
        """Counting for that share only."""
        return Look(self.energy * share, self.peaks * share, self.spread * share, self.count * share)


@dataclass(frozen=True)
class Judged:
    """One bucket, as the choice sees it.

    Args:
        energy: what the bucket's errors are multiples of.
        crest, spread: of its values.
        costs: bytes of its messages by codec, of all that it may use.
    """

    energy: float
    crest: float
    spread: float
    costs: Mapping[str, int]

    def error(self, codec: str) -> float:
        """Expected squared error."""
        if codec == INT2:
            return self.energy * between(self.spread, SPREADS[::-1], ERRORS[codec][::-1])
        return self.energy * between(self.crest, CRESTS, ERRORS[codec])

    @staticmethod
    def of(look: Look, elements: int, costs: Mapping[str, int]) -> Judged:
        """A bucket of so many elements that look like that."""
        own = {codec: costs[codec] for codec in CANDIDATES}
        each = look.energy / look.count
        return Judged(each * elements, look.peaks / look.energy, look.spread / look.energy, own)


def adapts(rung: Rung) -> bool:
    """Whether a rung's bytes can be spent otherwise: it is one of the candidates, and errors count in its unit."""
    return rung.normalise and rung.codec in ERRORS


def check_adaptive(codec: str, *, normalise: bool) -> str:
    """The codec's full text, of one whose bytes buckets can spend otherwise.

    Raises:
        ConfigError: it cannot be read, is none of `CANDIDATES`, or is not normalised.
    """
    text = str(parse(codec, field="sync.codec"))
    if text in ERRORS and not normalise:
        raise ConfigError(
            "Buckets cannot weigh their errors against each other in the gradients' own units.",
            field="sync.adaptive",
            found="true, without sync.normalise",
            expected="a normalised wire, whose unit is that of the optimizer's step",
            next_step="Set sync.normalise = true, or leave sync.adaptive out.",
        )
    if text in ERRORS:
        return text
    raise ConfigError(
        "Buckets cannot choose their own numbers beside this codec.",
        field="sync.adaptive",
        found=f"true, with codec {text!r}",
        expected="codec 'auto', or one of " + ", ".join(CANDIDATES),
        next_step="Name one of these codecs, or leave sync.adaptive out.",
    )


def choose(judged: Sequence[Judged], base: str, before: Sequence[str]) -> list[str]:
    """A codec for each bucket, together in no more bytes than `base` takes for all, with the least expected error.

    Args:
        before: the present ones; they stay where nothing is `LEAST_GAIN` better, and where they fit.
    """
    budget = total(judged, [base] * len(judged))
    chosen = _greedy(judged, budget)
    kept = list(before) if total(judged, before) <= budget else [base] * len(judged)
    return chosen if expected(judged, chosen) < (1.0 - LEAST_GAIN) * expected(judged, kept) else kept


def total(judged: Sequence[Judged], codecs: Sequence[str]) -> int:
    """Bytes."""
    return sum(each.costs[codec] for each, codec in zip(judged, codecs, strict=True))


def expected(judged: Sequence[Judged], codecs: Sequence[str]) -> float:
    """Squared error."""
    found = 0.0
    for each, codec in zip(judged, codecs, strict=True):
        found += each.error(codec)
    return found


def between(x: float, knots: Sequence[float], values: Sequence[float]) -> float:
    """On the line through the two points around x; the outermost value beyond them.

    Args:
        knots: ascending.
    """
    if x <= knots[0]:
        return values[0]
    for left, right, low, high in zip(knots, knots[1:], values, values[1:], strict=False):
        if x <= right:
            return low + (high - low) * ((x - left) / (right - left))
    return values[-1]


def _greedy(judged: Sequence[Judged], budget: int) -> list[str]:
    chosen = [min(each.costs, key=each.costs.__getitem__) for each in judged]
    left = budget - total(judged, chosen)
    waiting = [_best(i, each, chosen[i], left) for i, each in enumerate(judged)]
    heap = [step for step in waiting if step is not None]
    heapq.heapify(heap)
    while heap:
        _, index, more, codec = heapq.heappop(heap)
        if more <= left:
            chosen[index] = codec
            left -= more
        following = _best(index, judged[index], chosen[index], left)
        if following is not None:
            heapq.heappush(heap, following)
    return chosen


_Step = tuple[float, int, int, str]
"""(minus the error saved per byte, bucket, bytes more, codec)."""


def _best(index: int, judged: Judged, now: str, left: int) -> _Step | None:
    """The change of one bucket that saves most error per byte, of those that can be paid."""
    steps: list[_Step] = []
    for codec, cost in judged.costs.items():
        saved, more = judged.error(now) - judged.error(codec), cost - judged.costs[now]
        if saved > 0 and 0 <= more <= left:
            steps.append((-saved / max(more, 1), index, more, codec))
    return min(steps, default=None)

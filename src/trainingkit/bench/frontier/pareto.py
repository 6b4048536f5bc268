"""The frontier of bits against gap: a scheme is on it when none with as few bits has a smaller gap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

RELATIVE_MARGIN = 0.2
"""Share of the frontier's own gap that a margin grows by: where all gaps are large, near is further."""


@dataclass(frozen=True)
class Point:
    """A scheme's place: bits per parameter and step, and how much worse than dense it is."""

    scheme: str
    bits: float
    gap: float


def frontier(points: Sequence[Point]) -> list[Point]:
    """The points that no other beats in one figure while being as good in the other, by bits.

    >>> [p.scheme for p in frontier([Point("a", 1, 5.0), Point("b", 2, 6.0), Point("c", 4, 0.1), Point("d", 4, 0.3)])]
    ['a', 'c']
    """
    found: list[Point] = []
    for point in sorted(points, key=lambda p: (p.bits, p.gap)):
        if not found or point.gap < found[-1].gap:
            found.append(point)
    return found


def near(points: Sequence[Point], margin: float) -> set[str]:
    """Names of the schemes on the frontier, or behind it by no more than the margin."""
    line = frontier(points)
    return {p.scheme for p in points if p.gap <= _allowed(line, p.bits, margin)}


def _allowed(line: Sequence[Point], bits: float, margin: float) -> float:
    best = min(p.gap for p in line if p.bits <= bits)
    return best + margin + RELATIVE_MARGIN * max(0.0, best)

"""The frontier's plot as an SVG file, for Markdown pages, which cannot draw: a dot for each scheme in the colour of its
side, and names on the line. Whiskers and the rims of presets are on the HTML page only.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trainingkit.report.figures.frontier import SIDES, on_frontier

Row = Mapping[str, Any]
WIDTH, HEIGHT = 820, 440
LEFT, RIGHT, TOP, BOTTOM = 60, 20, 40, 50
MOST_GAPS = 3.0
"""The axis ends at so many times the median gap, or at the largest; what is above is drawn at its upper edge."""
TICKS_X = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 4, 8, 16, 32)
TICKS_Y = 6
NAME_SIZE = 10
LETTER = 0.6
"""Width of a letter, in font sizes: what most sans-serif letters stay below."""
TURN = 0.8
"""Share of the width beyond which a name stands to the left of its dot."""
Place = Callable[[float, float], tuple[float, float]]


def frontier_svg(title: str, rows: Sequence[Row]) -> str:
    """The plot. Rows without a gap are left out."""
    shown = [row for row in rows if row["gap"] is not None]
    low, high = _gap_range([row["gap"] for row in shown])
    bits = [row["bits"] for row in shown] or [1.0, 32.0]
    left, right = min(bits) / 1.3, max(32.0, *bits) * 1.1
    unit = rows[0]["unit"] if rows else ""

    def place(x: float, y: float) -> tuple[float, float]:
        across = math.log(x / left) / math.log(right / left)
        up = (min(max(y, low), high) - low) / (high - low)
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    box = f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {box}>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        _text(LEFT, 20, f"{title}: gap to dense ({unit}) against bits per parameter and step", size=14),
        *_grid(place, [x for x in TICKS_X if left <= x <= right], low, high, left),
        _line(place, on_frontier(shown)),
        *(_mark(place, row) for row in shown),
        *(_text(LEFT + 16 + 130 * n, HEIGHT - 8, f"{side} is coded") for n, side in enumerate(SIDES)),
        *(_dot(LEFT + 8 + 130 * n, HEIGHT - 12, colour, "") for n, (colour, _) in enumerate(SIDES.values())),
        _text(WIDTH - RIGHT, HEIGHT - 8, "dots at the upper edge lie above it: see the table", anchor="end"),
        "</svg>",
    ]
    return "\n".join(part for part in parts if part) + "\n"


def _gap_range(gaps: Sequence[float]) -> tuple[float, float]:
    """Lower and upper end of the axis."""
    ordered = sorted(gaps) or [0.0]
    most = max(1.0, MOST_GAPS * ordered[len(ordered) // 2])
    low, high = min(0.0, ordered[0]), min(max(1.0, ordered[-1]), most)
    return low - 0.05 * (high - low), high + 0.05 * (high - low)


def _grid(place: Place, xs: Sequence[float], low: float, high: float, left: float) -> list[str]:
    parts = []
    for x in xs:
        across, bottom = place(x, low)
        parts += [_rule(across, TOP, across, bottom), _text(across, bottom + 16, f"{x:g}", anchor="middle")]
    step = _nice((high - low) / TICKS_Y)
    for number in range(math.ceil(low / step), math.floor(high / step) + 1):
        _, up = place(left, number * step)
        parts += [_rule(LEFT, up, WIDTH - RIGHT, up), _text(LEFT - 6, up + 4, f"{number * step:.3g}", anchor="end")]
    return parts


def _nice(step: float) -> float:
    """1, 2 or 5 times a power of ten, not below `step`."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= step * (1 - 1e-9))


def _line(place: Place, rows: Sequence[Row]) -> str:
    corners: list[str] = []
    height: float | None = None
    for row in rows:
        across, up = place(row["bits"], row["gap"])
        corners += [] if height is None else [f"{across:.1f},{height:.1f}"]
        corners.append(f"{across:.1f},{up:.1f}")
        height = up
    path = f'points="{" ".join(corners)}" fill="none" stroke="#333333" stroke-width="1.5"'
    return f"<polyline {path}/>" if corners else ""


def _mark(place: Place, row: Row) -> str:
    across, up = place(row["bits"], row["gap"])
    words = f"{row['label']}: {row['bits']:.3g} bits, gap {row['gap']:.2f} {row['unit']}"
    dot = _dot(across, up, SIDES[row["side"]][0], words)
    return dot + (_name(across, up - 6, row["label"]) if row["on_frontier"] else "")


def _name(across: float, up: float, words: str) -> str:
    """A name right of its dot, or left of it where it would be cut off."""
    ends = across + 7 + LETTER * NAME_SIZE * len(words)
    if across > TURN * WIDTH or ends > WIDTH:
        return _text(across - 7, up, words, anchor="end", size=NAME_SIZE)
    return _text(across + 7, up, words, size=NAME_SIZE)


def _dot(across: float, up: float, colour: str, words: str) -> str:
    title = f"<title>{html.escape(words)}</title>" if words else ""
    return f'<circle cx="{across:.1f}" cy="{up:.1f}" r="4.5" fill="{colour}">{title}</circle>'


def _rule(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#dddddd"/>'


def _text(across: float, up: float, words: str, *, anchor: str = "start", size: int = 12) -> str:
    place = f'x="{across:.1f}" y="{up:.1f}" text-anchor="{anchor}" font-size="{size}"'
    return f'<text {place} fill="#222222">{html.escape(words)}</text>'

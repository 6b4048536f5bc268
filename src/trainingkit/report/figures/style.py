"""One look for all figures: a figure's shape, colours that colour-blind readers can tell apart, text that is safe."""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

PHASE_COLOURS = {
    "input": "#8c5a2b",
    "forward": "#56b4e9",
    "backward": "#0072b2",
    "encode": "#009e73",
    "wire": "#e69f00",
    "decode": "#f0e442",
    "stall": "#d55e00",
    "update": "#cc79a7",
    "other": "#999999",
}
"""Okabe and Ito's colours (plus brown); neighbours in the stack differ in lightness as well as in hue."""
PHASE_PATTERNS = {"input": ".", "stall": "/"}
"""The two phases in which a rank waits are hatched too, so that they are told apart without any colour."""
UNKNOWN_COLOUR = "#bbbbbb"
NOTHING = "The run recorded nothing to draw here."
TRAIN_COLOUR = "#0072b2"
VALIDATION_COLOUR = "#d55e00"
THROUGHPUT_COLOUR = "#009e73"
BYTES_COLOUR = "#e69f00"
REFERENCE_COLOUR = "#7f7f7f"
TEXT_COLOUR = "text"
"""As a line's colour: the colour of the page's text, light or dark. The page's script fills it in."""


@dataclass(frozen=True)
class Figure:
    """One plot.

    Args:
        name: id of its element in the page.
        title, caption: plain text for people; the caption says what is drawn and what to look for.
        data: plotly traces; empty when there is nothing to draw.
        empty: what to say then.
        height: pixels.
    """

    name: str
    title: str
    caption: str
    data: list[dict[str, Any]]
    layout: dict[str, Any] = field(default_factory=dict)
    empty: str = NOTHING
    height: int = 340


def phase_colour(phase: str) -> str:
    """The colour of a phase; grey for one we do not know."""
    return PHASE_COLOURS.get(phase, UNKNOWN_COLOUR)


def phase_marker(phase: str) -> dict[str, Any]:
    """Plotly's marker for a bar of that phase."""
    marker: dict[str, Any] = {"color": phase_colour(phase), "line": {"width": 0}}
    if phase in PHASE_PATTERNS:
        hatch = {"shape": PHASE_PATTERNS[phase], "fgcolor": "#ffffff", "fgopacity": 0.75, "size": 5, "solidity": 0.25}
        marker["pattern"] = {**hatch, "fillmode": "overlay"}
    return marker


def label(text: object, most: int = 160) -> str:
    """Text that plotly shows as it is: its own markup is escaped, and long text is cut with an ellipsis."""
    whole = " ".join(str(text).split())
    cut = whole if len(whole) <= most else whole[: most - 1] + "…"
    return html.escape(cut, quote=False)


def numbers(values: Iterable[float], digits: int = 5) -> list[float | None]:
    """JSON numbers of `digits` significant digits; what is not finite becomes null, which plotly draws as a gap."""
    return [float(f"{v:.{digits}g}") if np.isfinite(v) else None for v in values]


def axes(x: str, y: str, **y_more: Any) -> dict[str, Any]:
    """The layout that all figures share. Colours of text and grid are the page's, set when it is drawn."""
    return {
        "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
        "hovermode": "closest",
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
        "xaxis": {"title": {"text": x, "standoff": 8}, "automargin": True, "zeroline": False},
        "yaxis": {"title": {"text": y, "standoff": 8}, "automargin": True, "zeroline": False, **y_more},
    }


def capped_range(values: np.ndarray) -> tuple[float, float] | None:
    """[0, top] that cuts a few giants off (a slow first step), or None when the whole range is readable."""
    finite = values[np.isfinite(values)]
    if len(finite) < 5:
        return None
    usual, most = float(np.quantile(finite, 0.95)), float(finite.max())
    return (0.0, 1.25 * usual) if 0 < 2.0 * usual < most else None

"""What would a step take on each rung? From the steps seen on one rung, and from what earlier ones have shown.

Kept from rung to rung: the seconds of coding an exchange, and the share of a step in which there is something to hide
behind. Everything else is read off the steps of the present epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from trainingkit.sync.auto.epoch import Epoch, median
from trainingkit.sync.auto.forecast import Forecast, Link, Load, Window, forecast
from trainingkit.sync.auto.ladder import PLAIN, Rung
from trainingkit.sync.auto.seen import UNKNOWN, Seen

HIDE_SHARE = 0.5
"""Of the window, where no step of gradients has shown it yet."""


class Reckoning:
    """Forecasts of all rungs of a ladder.

    Args:
        ladder: the rungs; an index below is a place in it.
        shared: which part of the codec's seconds computing loses: 1 on a CPU, 0 on a GPU.
        loads: of the rungs, as soon as they are known.
    """

    def __init__(self, ladder: Sequence[Rung], *, shared: float) -> None:
        self.loads: Callable[[], Sequence[Load] | None] = lambda: None
        self._ladder = tuple(ladder)
        self._shared = shared
        self.forget()

    def forget(self) -> None:
        """Nothing that was seen so far counts any more."""
        self._code_s: dict[int, float] = {}
        self._hide_share = HIDE_SHARE
        self._last_window: Window | None = None

    def forecasts(self, epoch: Epoch, index: int) -> list[Forecast] | None:
        """By rung; None while too little is known.

        Args:
            index: of the rung that the epoch's samples are from.
        """
        loads, window, link = self.loads(), self._window(epoch, index), epoch.link()
        if loads is None or window is None or link is None:
            return None
        return self._on(window, link, epoch, index, loads)

    def on(self, link: Link, epoch: Epoch, index: int) -> list[Forecast] | None:
        """As `forecasts`, on another link, with the last window that was seen where the epoch has none yet."""
        loads, window = self.loads(), self._window(epoch, index) or self._last_window
        if loads is None or window is None:
            return None
        return self._on(window, link, epoch, index, loads)

    def leave(self, epoch: Epoch, index: int) -> None:
        """Keep what only steps on this rung show."""
        self._last_window = self._window(epoch, index) or self._last_window
        if not epoch.samples:
            return
        self._code_s[index] = median(epoch.samples, _code_s)
        if not self._ladder[index].apart:
            self._hide_share = median(epoch.samples, lambda seen: seen.hide_s / seen.window_s)

    def _on(self, window: Window, link: Link, epoch: Epoch, index: int, loads: Sequence[Load]) -> list[Forecast]:
        return [forecast(window, link, self._load(at, epoch, index, loads)) for at in range(len(self._ladder))]

    def _load(self, at: int, epoch: Epoch, index: int, loads: Sequence[Load]) -> Load:
        """A rung's load; the seconds of coding an exchange as they were seen, or as those of the present rung."""
        load = loads[at]
        if self._ladder[at].codec == PLAIN:
            return replace(load, code_s=0.0)
        here = [seen for seen in epoch.samples if seen.code_s != UNKNOWN]
        coded_here = here and self._ladder[index].codec != PLAIN
        known = self._code_s.get(at) or (median(here, _code_s) if coded_here else load.code_s)
        return replace(load, code_s=known)

    def _window(self, epoch: Epoch, index: int) -> Window | None:
        """Of the epoch's samples, without what coding takes from computing."""
        rung, samples = self._ladder[index], epoch.samples
        if not samples:
            return None
        code_s = 0.0 if rung.codec == PLAIN else max(0.0, median(samples, _code_s)) / rung.every
        window_s = median(samples, lambda seen: seen.window_s)
        compute_s = max(window_s / 2, window_s - self._shared * code_s)
        hide_s = self._hide_share * window_s if rung.apart else median(samples, lambda seen: seen.hide_s)
        return Window(compute_s, hide_s * compute_s / window_s, self._shared)


def _code_s(seen: Seen) -> float:
    return seen.code_s

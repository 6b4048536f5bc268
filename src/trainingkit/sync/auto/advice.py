"""What would each rung cost and save here? The forecast of a step for every rung, before anything is trained.

    without an exchange   none_s = compute + rest                rest: clipping, the update
    of a rung             step_s = forecast + rest               see `sync.auto.forecast`
    rho                   seconds plain fp32 needs on the wire / none_s

The best rung is the controller's choice: by the same forecast, the same slack, and within the same limits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from trainingkit.core.units import format_bytes, format_seconds
from trainingkit.sync.auto.controller import APART_WORTH
from trainingkit.sync.auto.forecast import Link, Load, Window, forecast, pick_of
from trainingkit.sync.auto.ladder import LADDER, MAX_RATIO, MIN_DENSITY, PLAIN, Rung, within_limits
from trainingkit.sync.auto.trials import SLACK

HIDDEN_SHARE = 0.05
"""A rung hides when at most this share of its step is spent waiting after the last gradient."""
WORTH = 0.03
"""A codec that makes steps less than this much shorter is not worth having."""
AUTO = 'With sync.codec = "auto" a run chooses by the same forecast, and by what it then measures.'
APART = " Ranks then train on their own between rounds, so more steps may be needed for the same loss."
TOLERABLE_SHARE = 0.1
"""Of a step: a wait that one can live with."""


@dataclass(frozen=True)
class Situation:
    """What is known of job and link.

    Args:
        ranks: that exchange.
        link: of each rank.
        window: of a step.
        rest_s: seconds of a step after the gradients are agreed.
        rungs: from the least lossy on.
        loads: of the rungs, in their order.
    """

    ranks: int
    link: Link
    window: Window
    rest_s: float
    loads: tuple[Load, ...]
    rungs: tuple[Rung, ...] = LADDER

    @property
    def none_s(self) -> float:
        """A step without any exchange."""
        return self.window.compute_s + self.rest_s

    @property
    def plain(self) -> Load | None:
        """What plain DDP sends; None where it is not among the rungs."""
        return next((load for rung, load in zip(self.rungs, self.loads, strict=True) if rung.codec == PLAIN), None)


@dataclass(frozen=True)
class Row:
    """A rung's forecast.

    Args:
        sent_bytes: that leave a rank in a step.
        exposed_s: of the step, waiting after the last gradient.
        vs_plain: how many times as fast as plain DDP.
        kept_share: of the speed without any exchange.
        hides: whether (nearly) all of it passes behind backward.
        allowed: whether a run that has proved nothing yet may use it.
    """

    rung: Rung
    sent_bytes: float
    step_s: float
    exposed_s: float
    code_s: float
    vs_plain: float
    kept_share: float
    hides: bool
    allowed: bool


@dataclass(frozen=True)
class Advice:
    """All rows, the one to take, and why.

    Args:
        best: index of the rung that the controller would choose.
        rho: seconds plain fp32 needs on the wire / seconds of a step without an exchange.
    """

    situation: Situation
    rows: tuple[Row, ...]
    best: int
    rho: float
    sentences: tuple[str, ...]

    @property
    def chosen(self) -> Row:
        """The best row."""
        return self.rows[self.best]


def advise(
    situation: Situation,
    *,
    max_ratio: float = MAX_RATIO,
    min_density: float = MIN_DENSITY,
    apart_worth: float = APART_WORTH,
) -> Advice:
    """Forecast all rungs and choose.

    Args:
        max_ratio, min_density, apart_worth: the controller's limits (`[sync]` of a recipe).
    """
    plain = situation.plain
    assert plain is not None and situation.ranks > 1
    plain_s = forecast(situation.window, situation.link, plain).step_s + situation.rest_s
    rows = tuple(
        _row(situation, rung, load, plain_s, allowed=within_limits(rung, max_ratio=max_ratio, min_density=min_density))
        for rung, load in zip(situation.rungs, situation.loads, strict=True)
    )
    best = _best(rows, situation.rest_s, apart_worth)
    rho = plain.sent_bytes / situation.link.bytes_per_s / situation.none_s
    return Advice(situation, rows, best, rho, tuple(_sentences(rows, best, situation)))


def _row(situation: Situation, rung: Rung, load: Load, plain_s: float, *, allowed: bool) -> Row:
    found = forecast(situation.window, situation.link, load)
    step_s = found.step_s + situation.rest_s
    return Row(
        rung=rung,
        sent_bytes=load.step_bytes,
        step_s=step_s,
        exposed_s=found.exposed_s,
        code_s=load.code_s,
        vs_plain=plain_s / step_s,
        kept_share=situation.none_s / step_s,
        hides=found.exposed_s <= HIDDEN_SHARE * step_s,
        allowed=allowed,
    )


def _best(rows: Sequence[Row], rest_s: float, apart_worth: float) -> int:
    """The controller looks at the step without its rest. Where a codec gains next to nothing, plain DDP is better."""
    times = [row.step_s - rest_s if row.allowed else None for row in rows]
    best = pick_of(times, [row.rung.apart for row in rows], slack=SLACK, worth=apart_worth)
    return 0 if rows[0].rung.codec == PLAIN and rows[best].vs_plain < 1.0 + WORTH else best


def _sentences(rows: Sequence[Row], best: int, situation: Situation) -> list[str]:
    chosen = rows[best]
    kept = f"{chosen.kept_share:.0%} of the speed without any exchange"
    if chosen.rung.codec == PLAIN:
        return [f"Your link is fast enough: plain DDP keeps {kept}. Compression does not pay here."]
    plain = next(row for row in rows if row.rung.codec == PLAIN)
    said = (
        f"Take {chosen.rung}: a step of {format_seconds(chosen.step_s)} instead of {format_seconds(plain.step_s)}, "
        f"{chosen.vs_plain:.2g} times as fast as plain DDP, {kept}; "
        f"{format_bytes(chosen.sent_bytes)} instead of {format_bytes(plain.sent_bytes)} a step."
    )
    said += APART if chosen.rung.apart else ""
    return [said, *_what_else(rows, chosen, situation), AUTO]


def _what_else(rows: Sequence[Row], chosen: Row, situation: Situation) -> list[str]:
    """What would help where the best rung still waits."""
    if chosen.hides:
        return []
    said = f"It still waits {format_seconds(chosen.exposed_s)} a step for the link. "
    beyond = min((row for row in rows if not row.allowed), key=lambda row: row.step_s, default=None)
    if beyond is not None and beyond.step_s < chosen.step_s * (1.0 - WORTH):
        said += (
            f"Once a run has proved stable, {beyond.rung} would take {format_seconds(beyond.step_s)}. "
            if beyond.hides
            else f"Even {beyond.rung}, beyond the limits, would take {format_seconds(beyond.step_s)}. "
        )
    times = math.ceil(chosen.exposed_s / TOLERABLE_SHARE / max(situation.none_s, 1e-9))
    if times < 2:
        return [said.rstrip()]
    return [said + f"With {times} times the micro-batches a step (step.accumulate) the wait is a tenth of it."]

"""The four answers at the top of the page: did the loss fall, where did the time go, who was slowest, what was run."""

from __future__ import annotations

from dataclasses import dataclass

from trainingkit.core.units import format_count, format_seconds
from trainingkit.report import sentences, summary
from trainingkit.report.figures import phase_colour
from trainingkit.report.rundata import RunData
from trainingkit.report.steptable import StepTable


@dataclass(frozen=True)
class Strip:
    """One piece of a card's strip: a name, its share of the width in percent, its colour."""

    name: str
    percent: float
    colour: str


@dataclass(frozen=True)
class Card:
    """A question, its answer as one big figure (with a small `unit`), and as sentences."""

    question: str
    figure: str
    sentences: tuple[str, ...]
    strip: tuple[Strip, ...] = ()
    unit: str = ""


def cards(run: RunData, table: StepTable, comparison: summary.Comparison) -> list[Card]:
    """The answers, in the order in which people ask."""
    shares = summary.time_shares(run, table)
    return [_loss(run, table), _time(shares), _ranks(comparison), _what(run, table)]


def _loss(run: RunData, table: StepTable) -> Card:
    change = summary.loss_change(run, table)
    total_s = float(table.elapsed_s[-1]) if len(table) else 0.0
    text = sentences.loss_sentence(change, len(table), total_s)
    return Card("Did the loss fall?", sentences.loss_figure(change), (text,), unit=change.unit if change else "")


def _time(shares: summary.TimeShares | None) -> Card:
    question, figure, first = "Where did the time go?", sentences.time_figure(shares), sentences.time_sentence(shares)
    if shares is None:
        return Card(question, figure, (first,))
    strip = tuple(Strip(name, 100 * share, phase_colour(name)) for name, share in shares.shares.items())
    between = sentences.between_sentence(shares)
    return Card(question, figure, (first, *([between] if between else [])), strip)


def _ranks(comparison: summary.Comparison) -> Card:
    longest = max((rank.own_s for rank in comparison.ranks), default=0.0)
    several = len(comparison.ranks) > 1 and longest > 0
    own = [f"rank {r.rank} {format_seconds(r.own_s)}" for r in comparison.ranks] if several else []
    text = (f"Own work a step: {', '.join(own)}.",) if 0 < len(own) <= 4 else ()
    return Card(
        "Which rank was slowest?", sentences.rank_figure(comparison), (sentences.rank_sentence(comparison), *text)
    )


def _what(run: RunData, table: StepTable) -> Card:
    start = run.last_start
    model = start.model if start else {}
    name, count = str(model.get("name") or model.get("kind") or "not recorded"), model.get("parameters")
    figure = f"{name} · {format_count(count)}" if isinstance(count, (int, float)) else name
    workers = start.world_size if start else len(run.ranks)
    planned = start.total_steps if start else None
    what = sentences.run_sentence(model, start.data if start else {}, workers, len(table), planned)
    last_step = int(table.step[-1]) if len(table) else 0
    early = next((e.text for e in reversed(run.events) if e.event == "early_stop"), "")
    end = sentences.ending_sentence(summary.ending(run), run.attempts, last_step, early)
    return Card("What was run?", figure, (what, end))

"""The page of a bench: one HTML file in the run page's style: cards, bars, losses, tables, command, machine, date."""

from __future__ import annotations

from pathlib import Path

from markupsafe import Markup

from trainingkit.bench.network.spec import JUDGED, REFERENCE
from trainingkit.bench.result import INTERVAL, TOO_NOISY, Check, Result
from trainingkit.core.errors import ConfigError
from trainingkit.core.files import write_atomic
from trainingkit.core.units import format_bytes, format_seconds
from trainingkit.report.assets import asset, plotly, template
from trainingkit.report.benchrows import has_frontier, has_minutes, row_tables
from trainingkit.report.benchtables import (
    aa_sentence,
    bounds_text,
    checks_table,
    facts_table,
    holds_text,
    machine_table,
)
from trainingkit.report.figures import contenders
from trainingkit.report.figures.frontier import gap_against_bits
from trainingkit.report.figures.minutes import loss_against_minutes
from trainingkit.report.figures.style import Figure
from trainingkit.report.frontiertables import rows_by_task, task_title
from trainingkit.report.headline import Card
from trainingkit.report.minutestables import rows_by_link
from trainingkit.report.page import drawing, script_json


def render_bench(result: Result) -> str:
    """The whole page as HTML. It fetches nothing, from nowhere."""
    plots = plots_of(result)
    return template("figures.html").render(
        kind="bench",
        pictures="Side by side",
        name=title_of(result),
        date=result.date,
        command=result.command,
        status="done" if result.holds else "failed",
        status_words="all checks hold" if result.holds else "not every check holds",
        cards=cards_of(result),
        warnings=[*([] if result.quiet else [TOO_NOISY]), *result.notes],
        plots=plots,
        tables=[checks_table(result), *row_tables(result), facts_table(result), machine_table(result)],
        trainingkit_version=result.versions.get("trainingkit", ""),
        css=Markup(asset("page.css")),
        script=Markup(asset("page.js")),
        plotly=plotly(),
        figures_json=Markup(script_json([drawing(plot) for plot in plots if plot.data])),
    )


def write_bench_page(result: Result, path: Path) -> None:
    """Make the page.

    Raises:
        ConfigError: the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, render_bench(result))
    except OSError as error:
        raise ConfigError(
            f"The page cannot be written: {error.strerror}.",
            field="--page",
            found=str(path),
            expected="a file name in a folder that can be written",
            next_step="Choose another with --page FILE.html.",
        ) from error


def title_of(result: Result) -> str:
    """'network bench: 4 hosts, 100mbit', as far as known."""
    parts = [f"{result.facts['hosts']} hosts"] if "hosts" in result.facts else []
    parts += [str(result.facts["link"])] if "link" in result.facts else []
    parts += [f"{format_seconds(result.facts['delay_s'])} delay"] if result.facts.get("delay_s") else []
    return f"{result.bench} bench" + (f": {', '.join(parts)}" if parts else "")


def cards_of(result: Result) -> list[Card]:
    """One card per check, then A/A, and what a host sends."""
    cards = [
        Card(
            check.name.replace("_", " "),
            f"{check.value:.3f}",
            (f"{_bounds_sentence(check)}; goal {check.goal}.", f"Holds: {holds_text(check, result)}."),
            unit="" if check.unit == "ratio" else check.unit,
        )
        for check in result.checks
    ]
    cards.append(Card("Can the machine tell?", "yes" if result.quiet else "no", (aa_sentence(result),)))
    rows = {row.get("contender"): row for row in result.rows}
    ours, plain = (rows.get(name, {}).get("wire_bytes") for name in (JUDGED, "plain"))
    if ours and plain:
        sentence = f"Plain DDP sends {format_bytes(plain)}: {plain / ours:.1f} times as much."
        cards.append(Card("What does a host send?", format_bytes(ours), (sentence,), unit="a step"))
    rho = result.facts.get("rho")
    if rho is not None:
        meaning = "Seconds that plain DDP adds to a step, divided by the seconds of the step without communication."
        cards.append(Card("How slow is the network?", f"{rho:.2f}", (meaning,), unit="rho"))
    return cards


def _bounds_sentence(check: Check) -> str:
    given = bounds_text(check)
    return f"{INTERVAL} {given}" if check.bounds == INTERVAL else f"Bounds {given} ({check.bounds})"


def plots_of(result: Result) -> list[Figure]:
    """A plot per task of a frontier or per link, the bars and curves of a bench with contenders; none for others."""
    if has_frontier(result):
        return [gap_against_bits(task, task_title(result, task), rows) for task, rows in rows_by_task(result).items()]
    if has_minutes(result):
        target = result.facts.get("target")
        return [loss_against_minutes(link, rows, target) for link, rows in rows_by_link(result).items()]
    rows = [row for row in result.rows if "contender" in row]
    if not rows:
        return []
    limit_s = next((row.get("step_s") for row in rows if row["contender"] == REFERENCE), None)
    return [
        contenders.kept_shares(rows),
        contenders.step_times(rows, limit_s),
        contenders.sent_bytes(rows),
        contenders.losses_over_steps(rows),
        contenders.losses_over_time(rows),
    ]

"""Assembly of the page: one HTML file that holds its styles, its script, plotly's script and all numbers."""

from __future__ import annotations

import json
import time
from typing import Any

from markupsafe import Markup

from trainingkit.report import figures, headline, sentences, steptable, summary, tables
from trainingkit.report.assets import asset, plotly, template
from trainingkit.report.figures import Figure
from trainingkit.report.rundata import RunData
from trainingkit.report.steptable import StepTable


def render(run: RunData) -> str:
    """The whole page as HTML. It fetches nothing, from nowhere."""
    table = steptable.build(run.ranks)
    comparison = summary.compare(run)
    plots = plots_of(run, table, comparison)
    start = run.last_start
    end = summary.ending(run)
    return template("page.html").render(
        name=run.name,
        status=end.status,
        status_words=sentences.STATUS_WORDS[end.status],
        failure=end.message if end.status == "failed" else "",
        started=sentences.moment(run.starts[0].time_s) if run.starts else "",
        made=sentences.moment(time.time()),
        cards=headline.cards(run, table, comparison),
        sections=sections_of(plots),
        bytes_sentence=_bytes_sentence(run, table),
        warnings=warnings_of(run, table),
        recipe=run.recipe,
        tables=tables_of(run),
        glossary=sentences.GLOSSARY,
        trainingkit_version=start.versions.get("trainingkit", "") if start else "",
        css=Markup(asset("page.css")),
        script=Markup(asset("page.js")),
        plotly=plotly(),
        figures_json=Markup(script_json([drawing(plot) for plot in plots if plot.data])),
    )


def drawing(plot: Figure) -> dict[str, Any]:
    """What the page's script needs of a figure."""
    return {"name": plot.name, "height": plot.height, "data": plot.data, "layout": plot.layout}


def plots_of(run: RunData, table: StepTable, comparison: summary.Comparison) -> list[Figure]:
    """All plots in the order of the page."""
    start = run.last_start
    word = "samples" if start and start.data.get("task") == "images" else "tokens"
    return [
        figures.loss_against_step(run, table),
        figures.loss_against_time(run, table),
        figures.tokens_per_second(table, word=word),
        figures.bytes_per_step(table, _plain_bytes(run)),
        figures.phases_over_steps(table),
        figures.phases_per_rank(comparison),
    ]


def _plain_bytes(run: RunData) -> dict[str, float]:
    """What a step of plain DDP would send, by its wire, where the run says it."""
    sync = run.last_start.sync if run.last_start else {}
    found = {wire: sync.get(f"{wire}_bytes") for wire in ("fp32", "bf16")}
    return {wire: float(value) for wire, value in found.items() if isinstance(value, (int, float))}


def sections_of(plots: list[Figure]) -> list[tuple[str, list[Figure]]]:
    """Plots under their headings; two that belong together share a row on a wide screen."""
    loss_step, loss_time, throughput, sent, phases, ranks = plots
    return [
        ("Loss", [loss_step, loss_time]),
        ("Speed and network", [throughput, sent]),
        ("Time", [phases]),
        ("Ranks", [ranks]),
    ]


def tables_of(run: RunData) -> list[tables.Table]:
    """All tables in the order of the page."""
    start = run.last_start
    return [
        tables.facts("Model", start.model if start else {}, "No rank wrote which model it trained."),
        tables.facts("Data", start.data if start else {}, "No rank wrote on which data it trained."),
        tables.machine_table(run),
        tables.facts(
            "Exchange between ranks", start.sync if start else {}, "No rank wrote how it exchanges gradients."
        ),
        tables.evaluations_table(run),
        tables.decisions_table(run),
        tables.events_table(run),
        tables.attempts_table(run),
    ]


def warnings_of(run: RunData, table: StepTable) -> list[str]:
    """Everything that a reader should doubt, one sentence each."""
    found = list(run.warnings)
    aborted = int((~table.committed).sum())
    if not run.evals:
        found.append("Nothing was evaluated on held-out data: the training loss alone does not show that it learned.")
    if aborted:
        found.append(f"{aborted} of {sentences.plural(len(table), 'step')} aborted, which left the model as it was.")
    if run.repeated_steps:
        found.append(f"{sentences.plural(run.repeated_steps, 'step')} had to be taken again after a resume.")
    return found


def script_json(value: Any) -> str:
    """JSON that may stand inside a script element: no text in it can end the element or open a comment."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def _bytes_sentence(run: RunData, table: StepTable) -> str:
    if len(table) == 0:
        return ""
    sync = run.last_start.sync if run.last_start else {}
    return sentences.bytes_sentence(float(table.wire_bytes.mean()), sync)

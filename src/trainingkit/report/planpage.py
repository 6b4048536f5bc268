"""The page of a plan: one HTML file in the run page's style: cards, timeline, memory, tables."""

from __future__ import annotations

import datetime

from markupsafe import Markup

from trainingkit.cluster.machine import describe_versions
from trainingkit.core.units import format_bytes, format_count, format_seconds
from trainingkit.planner import Answer
from trainingkit.planner.answering import limits
from trainingkit.planner.planfile import train_sentence
from trainingkit.report.assets import asset, plotly, template
from trainingkit.report.figures.plan import describe, memory_by_stage, parts_of_plans, timeline
from trainingkit.report.headline import Card
from trainingkit.report.page import drawing, script_json
from trainingkit.report.plantables import memory_table, neighbours_table, plans_table


def render_plan(answer: Answer, target_tokens: float | None) -> str:
    """The whole page as HTML. It fetches nothing, from nowhere."""
    plan = answer.best
    plots = [timeline(plan), memory_by_stage(plan), parts_of_plans(answer.plans)]
    cluster = answer.cluster
    return template("figures.html").render(
        kind="plan",
        pictures="The plan in pictures",
        name=f"{answer.job.model.name} on {cluster.devices:,} x {cluster.gpu.name}",
        date=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        command=describe(plan),
        status="done",
        status_words="predicted, not measured",
        cards=cards_of(answer, target_tokens),
        warnings=[*limits(answer, target_tokens), train_sentence(plan), *answer.reasons()[1:]],
        plots=plots,
        tables=[plans_table(answer, target_tokens), neighbours_table(answer), memory_table(plan)],
        trainingkit_version=describe_versions()["trainingkit"],
        css=Markup(asset("page.css")),
        script=Markup(asset("page.js")),
        plotly=plotly(),
        figures_json=Markup(script_json([drawing(plot) for plot in plots if plot.data])),
    )


def cards_of(answer: Answer, target_tokens: float | None) -> list[Card]:
    """How fast, how full, how long, how dear."""
    plan = answer.best
    low, high = plan.bar_s
    unit = "images" if answer.job.is_conv else "tokens"
    cards = [
        Card(
            "How long is a step?",
            format_seconds(plan.step_s),
            (f"Between {format_seconds(low)} and {format_seconds(high)} in nine of ten runs.", answer.reasons()[0]),
        ),
        Card(
            "How fast is that?",
            format_count(plan.tokens_per_s),
            (f"{plan.mfu:.1%} of the data sheet's peak, {plan.of_achievable:.1%} of what matrix products reach.",),
            unit=f"{unit}/s",
        ),
        Card(
            "Does it fit?",
            format_bytes(plan.memory.total),
            (
                f"Up to {format_bytes(plan.memory.high)} of {format_bytes(plan.cluster.gpu.memory_bytes)} on the "
                "fullest rank.",
            ),
        ),
    ]
    if target_tokens:
        price = plan.price_to(target_tokens)
        more = () if price is None else (f"At the cluster's price: {price:,.0f}.",)
        sentence = f"For {format_count(target_tokens)} {unit}, without a failure."
        cards.append(Card("When is it done?", f"{plan.days_to(target_tokens):.3g}", (sentence, *more), unit="days"))
    return cards

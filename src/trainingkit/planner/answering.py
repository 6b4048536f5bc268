"""An answer as plain values, for JSON and for pages."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from trainingkit.planner.asking import Answer
from trainingkit.planner.headlines import ceiling
from trainingkit.planner.planfile import plan_table

HEADLINE_HOURS = 36.0


def answer_table(answer: Answer, target_tokens: float | None) -> dict[str, Any]:
    """All plans in order, the winner's neighbours, reasons, and what the cluster cannot do."""
    table: dict[str, Any] = {
        "plans": [plan_table(plan) for plan in answer.plans],
        "reasons": answer.reasons(),
        "neighbours": [asdict(neighbour) for neighbour in answer.neighbours()],
        "limits": limits(answer, target_tokens),
    }
    if target_tokens:
        table["target"] = {
            "tokens": target_tokens,
            "days": [plan.days_to(target_tokens) for plan in answer.plans],
            "price": [plan.price_to(target_tokens) for plan in answer.plans],
        }
    return table


def limits(answer: Answer, target_tokens: float | None) -> list[str]:
    """Sentences: what 100 % of the data sheet would give, which nobody reaches."""
    top = ceiling(answer.job, answer.cluster)
    devices, gpu = answer.cluster.devices, answer.cluster.gpu
    unit = "images" if answer.job.is_conv else "tokens"
    precision = answer.job.precision
    text = [
        f"At 100 % of the data sheet's peak ({gpu.peak_rate(precision) / 1e12:.0f} TFLOP/s), {devices:,} x {gpu.name} "
        f"see {_count(top.tokens_in(HEADLINE_HOURS))} {unit} in {HEADLINE_HOURS:.0f} hours; "
        "anybody who says more is wrong.",
        f"The best large matrix products reach {gpu.rate(precision) / gpu.peak_rate(precision):.0%} of it, and no plan "
        "is predicted above that.",
    ]
    if target_tokens:
        days = top.days_for(target_tokens)
        text.append(f"{_count(target_tokens)} {unit} take at least {days:.3g} days at 100 % of the peak.")
    return text


def _count(value: float) -> str:
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if value >= size:
            return f"{value / size:.3g} {letter}"
    return f"{value:.3g}"

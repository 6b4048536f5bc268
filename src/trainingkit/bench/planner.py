"""How well does the planner predict what others measured, and how fast does it search? Scores a file of measured runs.

Checks are means of per-source means, so that a source with many rows counts once. They have no bounds from repeats:
the same file gives the same figures, and both bounds are the value.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainingkit.bench.result import Check, Result, make_check, make_result
from trainingkit.bench.stats import Interval
from trainingkit.planner.cluster import cluster_of
from trainingkit.planner.layout import Job
from trainingkit.planner.models import find_model
from trainingkit.planner.score import Score, score_file
from trainingkit.planner.search import Space, search

GOALS = {
    "mape_stock": 0.12,
    "mape_loso": 0.08,
    "mem_mape": 0.08,
    "oom_called_fit": 0.0,
    "fit_refused": 0.10,
    "regret_top1": 0.03,
    "regret_top3": 0.01,
    "search_s": 5.0,
}
FACTOR_GOAL = 0.05
NOTES = [
    "mape_stock: stock constants. mape_factor: one factor for each source, fitted on the source itself; its goal is "
    "5 % and the floor of repeats. mape_loso: factors fitted on all other sources.",
    "Each figure is the mean over sources of the mean over their rows; a bound is the figure itself.",
    "fit_refused counts rows that ran and that the planner would have refused, with their memory unknown or known.",
    "Constants of software (rates of old libraries, waits of an old pipeline engine) were set while looking at this "
    "file; rows that nobody looked at are the honest test.",
]


def run(file: Path, *, command: str, show: Callable[[float], None] | None = None) -> Result:
    """Score `file` and time the search for GPT-3 175B on 1,024 A100s.

    Raises:
        DataError: the file cannot be used.
    """
    score = score_file(file, show=show)
    seconds, plans = time_search()
    values = {**score.checks, "search_s": seconds}
    judged = [name for name in ("mape_factor", *GOALS) if not math.isnan(values[name])]
    checks = [_check(name, values[name], score) for name in judged]
    facts = {k: v for k, v in score.facts.items() if k != "sweeps" and not _unknown(v)}
    facts |= {"file": file.name, "search_layouts": plans}
    notes = [*NOTES, *(f"Excluded: {name} ({source}): {why}." for name, source, why in score.excluded)]
    return make_result("planner", command=command, checks=checks, rows=source_rows(score), facts=facts, notes=notes)


def time_search() -> tuple[float, int]:
    """Processor seconds of a whole search, which has one thread, and how many layouts it decided about."""
    cluster = cluster_of({"gpu": "a100-80g", "nodes": 128, "per_node": 8})
    job = Job(find_model("gpt3-175b"), 2048, 1536)
    begun = time.process_time()
    found = search(job, cluster, Space(), top=10)
    return time.process_time() - begun, found.considered


def source_rows(score: Score) -> list[dict[str, Any]]:
    """One row per source, the largest error first, and the whole last."""
    rows = [{k: _rounded(v) for k, v in row.items()} for row in sorted(score.sources, key=lambda r: -r["stock"])]
    whole = {"source": "mean of sources", "rows": len(score.predictions), "stock": score.checks["mape_stock"]}
    whole |= {"factored": score.checks["mape_factor"], "loso": score.checks["mape_loso"]}
    whole |= {"mem": score.checks["mem_mape"], "trivial": score.facts["trivial"]}
    return [*rows, {k: _rounded(v) for k, v in whole.items()}]


def _rounded(value: Any) -> Any:
    if _unknown(value):
        return None
    return round(value, 4) if isinstance(value, float) else value


def _unknown(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _check(name: str, value: float, score: Score) -> Check:
    goal = FACTOR_GOAL + score.facts["floor"] if name == "mape_factor" else GOALS[name]
    unit = {"search_s": "s", "oom_called_fit": "rows"}.get(name, "ratio")
    return make_check(name, Interval(value, value, value), f"<= {goal:.4f}", unit=unit)

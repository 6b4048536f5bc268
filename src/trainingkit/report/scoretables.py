"""A score of the planner as tables: sources, checks, floors, what was excluded."""

from __future__ import annotations

import math

from trainingkit.planner.score import Score
from trainingkit.report.tables import Table


def score_tables(score: Score, *, rows: bool) -> list[Table]:
    """Sources, then choice, exclusions and checks; each row of the file, too, where asked for."""
    tables = [sources_table(score), sweeps_table(score), excluded_table(score), summary_table(score)]
    return [rows_table(score), *tables] if rows else tables


def sources_table(score: Score) -> Table:
    """Mean absolute percentage errors by source, worst first, and its worst row."""
    found = []
    for row in sorted(score.sources, key=lambda r: -r["stock"]):
        worst = max((p for p in score.predictions if p.row.source == row["source"]), key=lambda p: abs(p.error))
        found.append(
            (
                row["source"],
                str(row["rows"]),
                _share(row["stock"]),
                _share(row["bias"], signed=True),
                _share(row["factored"]),
                _share(row["loso"]),
                _share(row["trivial"]),
                _share(row["mem"]),
                f"{worst.row.name} {worst.error:+.0%}",
            )
        )
    columns = ("source", "rows", "stock", "bias", "own factor", "left out", "one MFU", "memory", "worst row")
    note = (
        "Mean absolute errors of step time. stock: as it is; own factor: one factor for the source, fitted on it; left "
        "out: factors fitted on all others; one MFU: a single rate per GPU, precision and recompute, fitted in-sample."
    )
    return Table("Step time by source", columns, tuple(found), note)


def sweeps_table(score: Score) -> Table:
    """Regret of the choice in each sweep."""
    rows = tuple(
        (s["source"], s["model"], str(s["layouts"]), _share(s["top1"]), _share(s["top3"]))
        for s in score.facts["sweeps"]
    )
    columns = ("source", "sweep", "layouts", "first choice loses", "best of three loses")
    return Table("Choice of the layout", columns, rows, "" if rows else "No sweep with enough layouts.")


def excluded_table(score: Score) -> Table:
    """Rows with a step time that cannot be predicted."""
    return Table("Excluded", ("row", "source", "why"), tuple(score.excluded), "" if score.excluded else "Nothing.")


def summary_table(score: Score) -> Table:
    """The checks, and what they are to be compared with."""
    facts = score.facts
    rows = [(name, f"{value:.0f}" if name.startswith("oom") else _share(value)) for name, value in score.checks.items()]
    rows += [("repeat floor", _share(facts["floor"])), ("trivial: one MFU", _share(facts["trivial"]))]
    rows.append(("excluded", f"{_share(facts['excluded_share'])} of {facts['with_step_time']} with a step time"))
    note = (
        f"Means over sources of the means over their rows. {facts['rows_with_repeats']} rows have repeats, which "
        f"differ by up to {facts['widest_repeat']:.2f} times; the floor is the error of knowing each one's median."
    )
    return Table("Overall", ("figure", "value"), tuple(rows), note)


def rows_table(score: Score) -> Table:
    """Every row."""
    rows = tuple(
        (p.row.name, p.row.text("model"), f"{p.measured_s:.4g}", f"{p.predicted_s:.4g}", f"{p.error:+.1%}")
        for p in score.predictions
    )
    return Table("Rows", ("row", "model", "measured s", "predicted s", "error"), rows)


def _share(value: float | None, *, signed: bool = False) -> str:
    if value is None or math.isnan(value):
        return "-"
    return f"{value:+.1%}" if signed else f"{value:.1%}"

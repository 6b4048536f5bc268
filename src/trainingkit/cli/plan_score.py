"""`trainingkit plan score`: how well the planner predicts runs that were measured."""

from __future__ import annotations

import json as json_module
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainingkit.planner.score import Score


def plan_score(file: Path, /, *, json: Path | None = None, rows: bool = False) -> int:
    """Predict every run of a CSV file and compare, by source and overall.

    The file has the columns of published_runs.csv; empty cells are missing values, which are taken in all plausible
    ways, never solved from the row's own measurement.

    Examples:
      trainingkit plan score published_runs.csv
      trainingkit plan score published_runs.csv --json score.json --rows

    Parameters
    ----------
    file
        CSV with a row per measured run.
    json
        Write checks, sources, rows and what was excluded there.
    rows
        Print each row's measurement and prediction, too.
    """
    from trainingkit.cli.plan_progress import shares
    from trainingkit.planner.score import score_file

    with shares("scoring") as show:
        score = score_file(file, show=show)
    _print(score, rows=rows)
    if json is not None:
        from trainingkit.cli.plan import put_text

        put_text(json, json_module.dumps(score_table(score), indent=1) + "\n", "--json")
        sys.stdout.write(f"Result: {json}\n")
    return 0


def score_table(score: Score) -> dict[str, Any]:
    """A score as plain values."""
    return {
        "checks": {name: _known(value) for name, value in score.checks.items()},
        "facts": {name: _known(value) for name, value in score.facts.items()},
        "sources": score.sources,
        "excluded": [{"id": one.name, "source": one.source, "why": one.why} for one in score.excluded],
        "rows": [
            {"id": p.row.name, "source": p.row.source, "measured_s": p.measured_s, "predicted_s": p.predicted_s}
            | {"low_s": p.low_s, "high_s": p.high_s, "error": p.error}
            for p in score.predictions
        ],
        "memory": [
            {"id": m.row.name, "source": m.row.source, "measured_gib": m.measured_gib, "predicted_gib": m.predicted_gib}
            | {"high_gib": m.high_gib, "capacity_gib": m.capacity_gib, "out_of_memory": m.oom, "called_fit": m.fits}
            for m in score.memory
        ],
    }


def _known(value: Any) -> Any:
    """JSON has no NaN: a figure that no row gives is null."""
    return None if isinstance(value, float) and math.isnan(value) else value


def _print(score: Score, *, rows: bool) -> None:
    from trainingkit.cli.bench_print import print_table
    from trainingkit.report.scoretables import score_tables

    for table in score_tables(score, rows=rows):
        print_table(table)

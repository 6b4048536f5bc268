"""`trainingkit bench planner`."""

from __future__ import annotations

from pathlib import Path

from trainingkit.cli.bench_end import command_typed, conclude

DEFAULT = Path("../shared/data/published_runs.csv")


def bench_planner(*, file: Path = DEFAULT, json: Path | None = None, page: Path | None = None) -> int:
    """Score the planner on measured runs of others, and time its search for GPT-3 175B on 1,024 GPUs.

    Examples:
      trainingkit bench planner --json planner.json
      trainingkit bench planner --file runs.csv --page planner.html

    Ends with 0 when every check holds, with 1 when one does not.

    Parameters
    ----------
    file
        CSV with the columns of published_runs.csv.
    json
        Where to write the result.
    page
        Where to write the page, one HTML file.
    """
    from trainingkit.bench.planner import run
    from trainingkit.cli.plan_progress import shares

    with shares("scoring") as show:
        result = run(file, command=command_typed(), show=show)
    return conclude(result, json, page)

"""The rows of the time-to-loss bench as tables: contenders by link, the ablation by link, loss by rounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trainingkit.bench.result import Result
from trainingkit.core.units import format_seconds
from trainingkit.report.tables import Table

Row = Mapping[str, Any]
Cell = Callable[[Row], str]
ABLATION, GAP = "ablation", "every30"
UNKNOWN = "-"
NOTE = (
    "Steps: until the validation loss at which plain DDP with AdamW ends, the mean of its seeds; the first crossing on "
    "straight lines between evaluations, in whole exchanges, for everybody; the median of the seeds. '> n': a seed is "
    "not there within n steps, so there is no speedup. Speedup: over plain DDP. Bounds: the worst seed times the lower "
    "bound of the 90 % interval of the ratio of step seconds, and the best seed times its upper bound."
)

APART_NOTE = (
    "Times the winner's: steps, seed by seed, times seconds of a step, round by round in turns that both took; the "
    "bounds are those of the worst and the best seed times those of the 90 % interval of the seconds' ratio. Minutes "
    "are medians of their own, so their quotient may be another."
)


def rows_by_link(result: Result) -> dict[str, list[Row]]:
    """Contenders of each link, in the result's order."""
    found: dict[str, list[Row]] = {}
    for row in result.rows:
        if "link" in row and row["kind"] != ABLATION:
            found.setdefault(row["link"], []).append(row)
    return found


def minutes_tables(result: Result) -> list[Table]:
    """All tables."""
    tables = []
    for link, rows in rows_by_link(result).items():
        rho = (result.facts.get("rho_by_link") or {}).get(link)
        title = f"Minutes to the loss at {link}" + (f", rho {rho:.1f}" if rho is not None else "")
        tables.append(_table(title, CONTENDERS, rows, NOTE))
        judged = next((row for row in rows if row["judged"]), None)
        apart = [row for row in result.rows if row.get("link") == link and row["kind"] == ABLATION]
        if judged is not None and apart:
            beside = [{**judged, "times_judged": 1.0}, *apart]
            tables.append(_table(f"The winner with one thing put back, at {link}", ABLATIONS, beside, APART_NOTE))
    gaps = [row for row in result.rows if row["kind"] == GAP]
    return [*tables, *([_gap_table(gaps)] if gaps else [])]


def _table(title: str, columns: Mapping[str, Cell], rows: Sequence[Row], note: str) -> Table:
    return Table(title, tuple(columns), tuple(tuple(cell(row) for cell in columns.values()) for row in rows), note)


def _shown(key: str, show: Callable[[Any], str]) -> Cell:
    return lambda row: UNKNOWN if row.get(key) is None else show(row[key])


def _at_least(key: str, show: Callable[[Any], str]) -> Cell:
    """A figure; with '>' where the target was not reached."""
    plain = _shown(key, show)
    return lambda row: plain(row) if row.get("reached") or row.get(key) is None else f"> {plain(row)}"


def _bounds(key: str, digits: int) -> Cell:
    def cell(row: Row) -> str:
        low, high = row.get(f"{key}_low"), row.get(f"{key}_high")
        return UNKNOWN if low is None or high is None else f"{low:.{digits}f} to {high:.{digits}f}"

    return cell


CONTENDERS: dict[str, Cell] = {
    "contender": lambda row: f"{row['label']} (judged)" if row["judged"] else str(row["label"]),
    "run": _shown("length", "{} steps".format),
    "ends at loss": _shown("last_loss", "{:.4f}".format),
    "steps to the loss": _at_least("steps_to_loss", "{:.0f}".format),
    "step": _shown("step_s", format_seconds),
    "minutes": _at_least("minutes", "{:.1f}".format),
    "speedup": _shown("speedup", "{:.1f}".format),
    "bounds": _bounds("speedup", 1),
    "over bf16 wire": _shown("speedup_vs_bf16", "{:.1f}".format),
}
ABLATIONS: dict[str, Cell] = {
    "what": CONTENDERS["contender"],
    "steps to the loss": CONTENDERS["steps to the loss"],
    "step": CONTENDERS["step"],
    "minutes": CONTENDERS["minutes"],
    "times the winner's": _at_least("times_judged", "{:.2f}".format),
    "bounds": _bounds("times_judged", 2),
}


def _gap_table(rows: Sequence[Row]) -> Table:
    columns: dict[str, Cell] = {
        "rounds": _shown("rounds", str),
        "dense every step": _shown("dense", "{:.4f}".format),
        "every 30, top 1.56 % in 2 bits": _shown("every30", "{:.4f}".format),
        "gap": _shown("gap", "{:.4f}".format),
    }
    return _table("Loss by rounds, small scale, AdamW", columns, rows, "Validation loss of the agreed model.")

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
    "Steps: until the validation loss at which plain DDP with AdamW ends; '> n': not within the n steps of its longest "
    "run. Speedup: over plain DDP, with the bounds of the ratio of step seconds and of the seeds."
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
            beside = [_behind(row, judged) for row in (judged, *apart)]
            tables.append(_table(f"The winner with one thing put back, at {link}", ABLATIONS, beside, ""))
    gaps = [row for row in result.rows if row["kind"] == GAP]
    return [*tables, *([_gap_table(gaps)] if gaps else [])]


def _table(title: str, columns: Mapping[str, Cell], rows: Sequence[Row], note: str) -> Table:
    return Table(title, tuple(columns), tuple(tuple(cell(row) for cell in columns.values()) for row in rows), note)


def _behind(row: Row, judged: Row) -> Row:
    known = row["minutes"] is not None and judged["minutes"]
    return {**row, "times_winner": row["minutes"] / judged["minutes"] if known else None}


def _shown(key: str, show: Callable[[Any], str]) -> Cell:
    return lambda row: UNKNOWN if row.get(key) is None else show(row[key])


def _at_least(key: str, show: Callable[[Any], str]) -> Cell:
    """A figure; with '>' where the target was not reached."""
    plain = _shown(key, show)
    return lambda row: plain(row) if row.get("reached") or row.get(key) is None else f"> {plain(row)}"


def _bounds(row: Row) -> str:
    if row["speedup_low"] is None or row["speedup_high"] is None:
        return UNKNOWN
    return f"{row['speedup_low']:.1f} to {row['speedup_high']:.1f}"


CONTENDERS: dict[str, Cell] = {
    "contender": lambda row: f"{row['label']} (judged)" if row["judged"] else str(row["label"]),
    "run": _shown("length", "{} steps".format),
    "ends at loss": _shown("last_loss", "{:.4f}".format),
    "steps to the loss": _at_least("steps_to_loss", "{:.0f}".format),
    "step": _shown("step_s", format_seconds),
    "minutes": _at_least("minutes", "{:.1f}".format),
    "speedup": _shown("speedup", "{:.1f}".format),
    "90 % interval": _bounds,
    "over bf16 wire": _shown("speedup_vs_bf16", "{:.1f}".format),
}
ABLATIONS: dict[str, Cell] = {
    "what": CONTENDERS["contender"],
    "steps to the loss": CONTENDERS["steps to the loss"],
    "step": CONTENDERS["step"],
    "minutes": CONTENDERS["minutes"],
    "times the winner's": _at_least("times_winner", "{:.2f}".format),
}


def _gap_table(rows: Sequence[Row]) -> Table:
    columns: dict[str, Cell] = {
        "rounds": _shown("rounds", str),
        "dense every step": _shown("dense", "{:.4f}".format),
        "every 30, top 1.56 % in 2 bits": _shown("every30", "{:.4f}".format),
        "gap": _shown("gap", "{:.4f}".format),
    }
    return _table("Loss by rounds, small scale, AdamW", columns, rows, "Validation loss of the agreed model.")

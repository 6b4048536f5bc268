"""The page's tables: rows of text for people, from records that may lack anything."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from trainingkit.core.records import StartRecord
from trainingkit.core.units import format_bytes, format_count
from trainingkit.report.rundata import RunData
from trainingkit.report.sentences import moment

MAX_ROWS = 300


@dataclass(frozen=True)
class Table:
    """Rows of text under a title. `note` stands below it; without rows the table is that note alone."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def value_text(name: str, value: Any) -> str:
    """One value for people; the unit is read off its name."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number and name.endswith("_bytes"):
        return format_bytes(value)
    if is_number and name == "parameters":
        return f"{format_count(value)} ({value:,})".replace(",", " ")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value):
        return "; ".join(value)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list, tuple)) else str(value)


def facts(title: str, values: Mapping[str, Any], empty: str) -> Table:
    """Names and values of a flat mapping."""
    rows = tuple((name.replace("_", " "), value_text(name, value)) for name, value in values.items())
    return Table(title, ("what", "value"), rows, "" if rows else empty)


def machine_table(run: RunData) -> Table:
    """One column of facts per host of the latest attempt."""
    last = [s for s in run.starts if s.attempt == run.starts[-1].attempt] if run.starts else []
    hosts: dict[str, list[StartRecord]] = {}
    for start in last:
        hosts.setdefault(str(start.host), []).append(start)
    described = {host: _machine(starts) for host, starts in hosts.items()}
    names = list(dict.fromkeys(name for values in described.values() for name in values))
    rows = tuple((name.replace("_", " "), *(d.get(name, "") for d in described.values())) for name in names)
    note = "" if rows else "No rank wrote on what machine it ran."
    return Table("Machine", ("what", *described), rows, note)


def _machine(starts: list[StartRecord]) -> dict[str, str]:
    ranks = ", ".join(str(s.rank) for s in starts)
    threads = ", ".join(sorted({str(s.threads) for s in starts}))
    values = {"ranks": ranks, "threads per worker": threads}
    values |= {name: value_text(name, value) for name, value in starts[0].machine.items()}
    return values | {name: str(version) for name, version in starts[0].versions.items()}


def attempts_table(run: RunData) -> Table:
    """One row per attempt: when, with how many workers, from which step."""
    first = {s.attempt: s for s in reversed(run.starts)}
    starts = [first[attempt] for attempt in sorted(first)]
    rows = tuple((str(s.attempt), moment(s.time_s), str(s.world_size), str(s.start_step)) for s in starts)
    note = f"{run.repeated_steps} step(s) were taken again after a resume; the page shows the later ones."
    return Table("Attempts", ("attempt", "started", "workers", "after step"), rows, note if run.repeated_steps else "")


def decisions_table(run: RunData) -> Table:
    """Automatic choices with their reasons."""
    rows = (
        (str(d.get("step", "")), str(d.get("choice", "")), value_text("", d.get("value")), str(d.get("reason", "")))
        for d in run.decisions
    )
    return _limited("Decisions", ("step", "choice", "value", "reason"), rows, "No automatic choice was recorded.")


def events_table(run: RunData) -> Table:
    """Snapshots, aborts, resumes and the like, in order."""
    rows = ((moment(e.time_s), str(e.step), str(e.event).replace("_", " "), str(e.text)) for e in run.events)
    return _limited("Events", ("when", "step", "event", "what happened"), rows, "No event was recorded.")


def evaluations_table(run: RunData) -> Table:
    """One row per evaluation, a column per metric."""
    metrics = list(dict.fromkeys(name for e in run.evals for name in e.metrics))
    rows = (
        (str(e.step), *(_metric(e.metrics.get(name)) for name in metrics), str(e.samples), f"{e.seconds:.2f}")
        for e in run.evals
    )
    columns = ("step", *(name.replace("_", " ") for name in metrics), "samples", "seconds")
    return _limited("Evaluations", columns, rows, "Nothing was evaluated on held-out data.")


def _metric(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, (int, float)) else "not finite"


def _limited(title: str, columns: tuple[str, ...], rows: Iterable[tuple[str, ...]], empty: str) -> Table:
    every = tuple(rows)
    note = empty if not every else ""
    if len(every) > MAX_ROWS:
        note = f"The last {MAX_ROWS} of {len(every)} are shown; the run folder holds all."
    return Table(title, columns, every[-MAX_ROWS:], note)

"""A bench's result as rows of text, for its page and for docs/benchmarks; figures are never typed by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainingkit.bench.result import INTERVAL, Check, Result
from trainingkit.core.units import format_bytes, format_seconds
from trainingkit.report.tables import Table, facts

Cell = Callable[[Any], str]


def checks_table(result: Result) -> Table:
    """Claims, their bounds, their goals, and whether they hold; a note where the bounds are not all of one kind."""
    rows = tuple(
        (claim.name, f"{claim.value:.3f}", bounds_text(claim), claim.unit, claim.goal, holds_text(claim, result))
        for claim in result.checks
    )
    kinds = list(dict.fromkeys(claim.bounds for claim in result.checks)) or [INTERVAL]
    columns = ("check", "value", kinds[0] if len(kinds) == 1 else "bounds", "unit", "goal", "holds")
    return Table("Checks", columns, rows, _bounds_note(result) if rows else "This bench claims nothing.")


def _bounds_note(result: Result) -> str:
    names: dict[str, list[str]] = {}
    for claim in result.checks:
        names.setdefault(claim.bounds, []).append(claim.name)
    return "" if len(names) == 1 else " ".join(f"Bounds of {', '.join(of)}: {kind}." for kind, of in names.items())


def bounds_text(check: Check) -> str:
    """'0.951 to 0.982', or that there were too few samples."""
    return interval_text(check.low, check.high)


def interval_text(low: float | None, high: float | None) -> str:
    """Bounds for people."""
    return "too few turns" if low is None or high is None else f"{low:.3f} to {high:.3f}"


def holds_text(check: Check, result: Result) -> str:
    """'yes', 'no', or that the machine was too noisy to say."""
    if not result.quiet:
        return "not judged: noisy machine" if check.holds else "no"
    return "yes" if check.holds else "no"


def rows_table(result: Result) -> Table:
    """The contenders of the network bench, or the rows of another bench as they are."""
    if result.rows and "contender" in result.rows[0]:
        return _contenders(result)
    names = list(dict.fromkeys(name for row in result.rows for name in row))
    rows = tuple(tuple(_plain(name, row.get(name)) for name in names) for row in result.rows)
    return Table("Rows", tuple(name.replace("_", " ") for name in names), rows, "" if rows else "No rows.")


def facts_table(result: Result) -> Table:
    """What was run."""
    shown = {name: value for name, value in result.facts.items() if value is not None}
    return facts("What was run", {"command": result.command, "date": result.date, **shown}, "Nothing was noted.")


def machine_table(result: Result) -> Table:
    """The host and the versions."""
    return facts("Machine", {**result.machine, **result.versions}, "No machine was noted.")


def aa_sentence(result: Result) -> str:
    """What A/A showed."""
    aa = result.aa
    if not aa:
        return "This bench has no contender against itself."
    verdict = "quiet enough" if result.quiet else "too noisy: trust no check"
    shown = "nothing" if aa["value"] is None else f"{aa['value']:.3f} ({interval_text(aa['low'], aa['high'])})"
    return f"A/A ({aa['of']}, {aa['rounds']} rounds) shows {shown}; the machine is {verdict}."


def _contenders(result: Result) -> Table:
    columns: dict[str, tuple[str, Cell]] = {
        "contender": ("label", str),
        "step": ("step_s", format_seconds),
        "ratio": ("ratio", "{:.2f}".format),
        "speed kept": ("kept_share", "{:.3f}".format),
        "sent a step": ("wire_bytes", format_bytes),
        "it says": ("said_bytes", format_bytes),
        "loss, equal steps": ("loss_equal_steps", "{:.4f}".format),
        "loss, equal time": ("loss_equal_time", "{:.4f}".format),
        "turns": ("turns", str),
    }
    rows = tuple(
        tuple("-" if row.get(key) is None else show(row[key]) for key, show in columns.values()) for row in result.rows
    )
    return Table("Contenders", tuple(columns), rows, _contenders_note(result))


def _contenders_note(result: Result) -> str:
    steps, time_s = result.facts.get("equal_steps"), result.facts.get("equal_time_s")
    note = "Ratios are medians over rounds of the step to the step without communication in the same round."
    if steps is not None:
        note += f" Equal steps: {steps}."
    if time_s is not None:
        note += f" Equal time: {format_seconds(time_s)}."
    return note


def _plain(name: str, value: Any) -> str:
    if isinstance(value, float):
        return format_seconds(value) if name.endswith("_s") and not name.endswith("per_s") else f"{value:.4g}"
    return "-" if value is None else str(value)

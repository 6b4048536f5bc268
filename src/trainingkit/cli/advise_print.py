"""Advice on the screen and as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainingkit.cli.bench_print import print_table
from trainingkit.core.errors import ConfigError
from trainingkit.core.files import write_atomic
from trainingkit.core.units import format_bytes, format_count, format_seconds
from trainingkit.netlab.rates import format_rate
from trainingkit.report.tables import Table
from trainingkit.sync.auto.ladder import PLAIN

if TYPE_CHECKING:
    from trainingkit.sync.auto.advice import Advice, Row
    from trainingkit.sync.auto.ladder import Rung

COLUMNS = ("", "rung", "sent a step", "step", "waits", "vs plain", "speed kept", "hides")
BEYOND = "*"
FORMAT = 1


def print_advice(advice: Advice, notes: Mapping[str, Any]) -> None:
    """What was measured, a table with a row for each rung, and what to do."""
    sys.stdout.write("\n".join(_situation(advice, notes)) + "\n\n")
    rows = tuple(_cells(row, best=index == advice.best) for index, row in enumerate(advice.rows))
    note = "" if all(row.allowed for row in advice.rows) else f"{BEYOND} only once a run has proved stable"
    print_table(Table("What each rung would cost", COLUMNS, rows, note))
    sys.stdout.write("\n".join(advice.sentences) + "\n")


def write_advice(advice: Advice, notes: Mapping[str, Any], path: Path) -> None:
    """All figures as JSON.

    Raises:
        ConfigError: the file cannot be written.
    """
    try:
        write_atomic(path, json.dumps(to_table(advice, notes), indent=1) + "\n")
    except OSError as error:
        raise ConfigError(
            f"The advice cannot be written: {error.strerror}.",
            field="--json",
            found=str(path),
            expected="a file name in a folder that can be written",
            next_step="Make the folder, or choose another file.",
        ) from error


def to_table(advice: Advice, notes: Mapping[str, Any]) -> dict[str, Any]:
    """The advice as JSON-able figures; seconds, bytes and shares as their names say."""
    situation = advice.situation
    rows = [{**asdict(row), **_rung(row.rung)} for row in advice.rows]
    return {
        "format": FORMAT,
        "best": advice.best,
        "rho": advice.rho,
        "sentences": list(advice.sentences),
        "ranks": situation.ranks,
        "none_s": situation.none_s,
        "rest_s": situation.rest_s,
        "window": asdict(situation.window),
        "link": asdict(situation.link),
        "rungs": rows,
        "notes": dict(notes),
    }


def _rung(rung: Rung) -> dict[str, Any]:
    apart = {"every": rung.every, "tau": rung.tau} if rung.apart else {}
    return {"rung": rung.codec, "normalise": rung.normalise, **apart}


def _situation(advice: Advice, notes: Mapping[str, Any]) -> list[str]:
    situation, window, link = advice.situation, advice.situation.window, advice.situation.link
    rate, parameters = format_rate(8 * link.bytes_per_s), format_count(notes["parameters"])
    return [
        f"model   {parameters} parameters in {notes['buckets']} buckets, {situation.ranks} ranks",
        f"step    {format_seconds(situation.none_s)} without an exchange; "
        f"gradients become ready in {format_seconds(window.hide_s)} of it",
        f"link    {rate} a rank, {format_seconds(link.latency_s)} a collective; {notes['link']}",
        f"rho     {advice.rho:.3g}: plain fp32 needs {advice.rho:.3g} times as long on the wire as a step computes",
    ]


def _cells(row: Row, *, best: bool) -> tuple[str, ...]:
    return (
        "best" if best else "",
        _name(row),
        format_bytes(row.sent_bytes),
        format_seconds(row.step_s),
        format_seconds(row.exposed_s),
        f"{row.vs_plain:.2f}",
        f"{row.kept_share:.1%}",
        "yes" if row.hides else "no",
    )


def _name(row: Row) -> str:
    if row.rung.codec == PLAIN:
        return "plain DDP, fp32"
    return str(row.rung) if row.allowed else f"{row.rung} {BEYOND}"

"""docs/benchmarks/*.md from results: date, command, machine, rho, tables. Nobody types a figure."""

from __future__ import annotations

from collections.abc import Sequence

from trainingkit.bench.result import TOO_NOISY, Result
from trainingkit.core.units import format_bytes
from trainingkit.report.benchpage import title_of
from trainingkit.report.benchtables import aa_sentence, checks_table, rows_table
from trainingkit.report.tables import Table


def render_markdown(title: str, results: Sequence[Result]) -> str:
    """One page over several results of one bench, in the order given."""
    intro = "Made by `trainingkit bench page`; do not edit. How to read it: [README](README.md)."
    return "\n\n".join([f"# {title}", intro, *(_section(result) for result in results)]) + "\n"


def markdown_table(table: Table) -> str:
    """A table in Markdown; a bar in a cell is escaped."""
    lines = [table.columns, tuple("---" for _ in table.columns), *table.rows]
    rows = "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)
    return f"{rows}\n\n{table.note}" if table.note else rows


def _section(result: Result) -> str:
    parts = [f"## {title_of(result).capitalize()}", _about(result)]
    parts += [f"**{TOO_NOISY}**"] if not result.quiet else []
    parts += [aa_sentence(result), markdown_table(checks_table(result)), markdown_table(rows_table(result))]
    notes = "\n".join(f"- {_cell(note)}" for note in result.notes)
    return "\n\n".join([*parts, notes] if notes else parts)


def _about(result: Result) -> str:
    machine = result.machine
    cpu = machine.get("cpu") or machine.get("processor") or "unknown processor"
    ram = f", {format_bytes(machine['ram_bytes'])} of memory" if "ram_bytes" in machine else ""
    versions = ", ".join(f"{name} {version}" for name, version in result.versions.items())
    lines = [
        f"- Date: {result.date}",
        f"- Command: `{result.command}`",
        f"- Machine: {cpu}, {machine.get('cores', '?')} cores{ram}; {versions}",
    ]
    rho = result.facts.get("rho")
    if rho is not None:
        lines.append(f"- rho: {rho:.2f} (seconds plain DDP adds / seconds of a step without communication)")
    for name in ("parameters", "batch", "data", "compute"):
        if name in result.facts:
            lines.append(f"- {name.capitalize()}: {result.facts[name]}")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")

"""docs/benchmarks/*.md from results: date, command, machine, rho, tables. Nobody types a figure."""

from __future__ import annotations

from collections.abc import Sequence

from trainingkit.bench.result import TOO_NOISY, Result
from trainingkit.core.units import format_bytes
from trainingkit.report.benchpage import title_of
from trainingkit.report.benchpictures import picture_name
from trainingkit.report.benchrows import has_frontier, row_tables
from trainingkit.report.benchtables import aa_sentence, checks_table
from trainingkit.report.frontiertables import rows_by_task
from trainingkit.report.tables import Table

_APART = ("title", "data")


def render_markdown(title: str, results: Sequence[Result]) -> str:
    """One page over several results of one bench, in the order given."""
    intro = "Made by `trainingkit bench page`; do not edit. How to read it: [README](README.md)."
    sections = [_section(result, number) for number, result in enumerate(results)]
    return "\n\n".join([f"# {title}", intro, *sections]) + "\n"


def markdown_table(table: Table) -> str:
    """A table in Markdown; a bar in a cell is escaped."""
    lines = [table.columns, tuple("---" for _ in table.columns), *table.rows]
    rows = "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)
    return f"{rows}\n\n{table.note}" if table.note else rows


def _section(result: Result, number: int) -> str:
    parts = [f"## {title_of(result).capitalize()}", _about(result)]
    parts += [f"**{TOO_NOISY}**"] if not result.quiet else []
    parts += [aa_sentence(result), markdown_table(checks_table(result))]
    parts += _tasks(result, number) if has_frontier(result) else _tables(row_tables(result))
    notes = "\n".join(f"- {_cell(note)}" for note in result.notes)
    return "\n\n".join([*parts, notes] if notes else parts)


def _tables(tables: Sequence[Table]) -> list[str]:
    """One table as it is; several under their titles."""
    titles = [f"### {table.title}" for table in tables] if len(tables) > 1 else []
    shown = [markdown_table(table) for table in tables]
    return [part for pair in zip(titles, shown, strict=True) for part in pair] if titles else shown


def _tasks(result: Result, number: int) -> list[str]:
    """Of each task of a frontier: what was run, the picture beside the page, the table."""
    parts = []
    for task, table in zip(rows_by_task(result), row_tables(result), strict=True):
        facts = result.facts.get(task, {})
        about = "; ".join(f"{name.replace('_', ' ')} {value}" for name, value in facts.items() if name not in _APART)
        data = "; ".join(f"{name.replace('_', ' ')}: {value}" for name, value in facts.get("data", {}).items())
        picture = f"![Gap against bits, {table.title}]({picture_name(task, number)})"
        parts += [f"### {table.title}", f"- Settings: {about}\n- Data: {data}", picture, markdown_table(table)]
    return parts


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

"""A bench's result on the screen: checks, rows, A/A, notes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from trainingkit.bench.result import TOO_NOISY
from trainingkit.report.benchrows import row_tables
from trainingkit.report.benchtables import aa_sentence, checks_table

if TYPE_CHECKING:
    from trainingkit.bench.result import Result
    from trainingkit.report.tables import Table

PLAIN_WIDTH = 160


def print_result(result: Result) -> None:
    """Print it to stdout; tables are drawn for the terminal's width, or wide where there is no terminal."""
    for table in (*row_tables(result), checks_table(result)):
        print_table(table)
    for line in (aa_sentence(result), *([] if result.quiet else [TOO_NOISY]), *result.notes):
        sys.stdout.write(line + "\n")


def print_table(table: Table) -> None:
    """One table, its title before it and its note after it."""
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    sys.stdout.write(f"{table.title}\n")
    drawn = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in table.columns:
        drawn.add_column(column, overflow="fold")
    for row in table.rows:
        drawn.add_row(*(Text(cell) for cell in row))
    Console(file=sys.stdout, width=None if sys.stdout.isatty() else PLAIN_WIDTH).print(drawn)
    if table.note:
        sys.stdout.write(table.note + "\n")

"""How every bench command ends: JSON, page, tables, exit code; and what was typed, for the result."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainingkit.bench.result import Result

OUTPUTS = ("--json", "--page")


def conclude(result: Result, json: Path | None, page: Path | None) -> int:
    """Write what was asked for, print the tables; 0 when every check holds on a quiet machine, else 1."""
    from trainingkit.bench.result import write
    from trainingkit.cli.bench_print import print_result

    if json is not None:
        write(result, json)
    if page is not None:
        from trainingkit.report.benchpage import write_bench_page

        write_bench_page(result, page)
    print_result(result)
    for what, path in (("Result", json), ("Page", page)):
        if path is not None:
            sys.stdout.write(f"{what}: {path}\n")
    return 0 if result.holds else 1


def command_typed() -> str:
    """What was typed, without where the output went."""
    return shlex.join(["trainingkit", *without_options(sys.argv[1:], OUTPUTS)])


def without_options(words: list[str], names: tuple[str, ...]) -> list[str]:
    """The words without the options `names` and their values, in both spellings: `--name value` and `--name=value`."""
    kept: list[str] = []
    skip = False
    for word in words:
        name, equals, _ = word.partition("=")
        if not skip and name not in names:
            kept.append(word)
        skip = not skip and name in names and not equals
    return kept

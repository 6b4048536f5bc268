"""Plans on the screen: one table, and sentences below it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from trainingkit.cli.bench_print import print_table
from trainingkit.planner.answering import limits
from trainingkit.report.plantables import neighbours_table, plans_table

if TYPE_CHECKING:
    from trainingkit.planner import Answer


def print_answer(answer: Answer, target_tokens: float | None, *, explain: bool) -> None:
    """Print it to stdout; `explain` adds neighbours and rules."""
    print_table(plans_table(answer, target_tokens))
    reasons = answer.reasons()
    if explain:
        print_table(neighbours_table(answer))
    shown = reasons if explain else [line for line in reasons if not line.startswith("Cut ")]
    for line in (*shown, *limits(answer, target_tokens)):
        sys.stdout.write(line + "\n")
    if not explain:
        sys.stdout.write("Add --explain for what each neighbour would lose and which rule excluded what.\n")

"""`trainingkit recover`."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from trainingkit.core.runfolder import RunFolder

_SPAN = re.compile(r"(\d+)\.\.(\d+)")


def recover(
    run: Path,
    *,
    inspect: Annotated[bool, Parameter(negative="")] = False,
    to_step: int | None = None,
    skip_batches: Annotated[list[str] | None, Parameter(negative="", consume_multiple=False)] = None,
) -> int:
    """Show what a run can go back to, or set it back to a step.

    A resume goes by itself from the newest whole snapshot to the last step that the journal covers. To go back further,
    set the run back first: what is newer is put aside below RUN/aside, and nothing is deleted.

    Examples:
      trainingkit recover runs/default-20261130-120000 --inspect
      trainingkit recover runs/default-20261130-120000 --to-step 57
      trainingkit recover runs/default-20261130-120000 --to-step 57 --skip-batches 58..60

    Parameters
    ----------
    run
        The run folder. No job may be at work in it, except for --inspect.
    inspect
        List snapshots, the journal's segments, their damage, and the steps that are covered. The default.
    to_step
        Make this the step that a resume goes on from.
    skip_batches
        With --to-step: leave out the batches that steps A to B would take next, written A..B. May be repeated.
    """
    from trainingkit.core.runfolder import RunFolder

    folder = RunFolder.existing(run)
    spans = [_span(text, to_step) for text in skip_batches or ()]
    if to_step is None or inspect:
        from trainingkit.cli.recover_print import print_survey
        from trainingkit.recovery.journal import survey

        print_survey(survey(folder), folder)
    if to_step is not None:
        with folder.locked():
            _set_back(folder, to_step, spans)
    return 0


def _set_back(folder: RunFolder, step: int, spans: list[tuple[int, int]]) -> None:
    from trainingkit.core import decisions
    from trainingkit.recovery.journal import set_back
    from trainingkit.trainer.skipping import read_skips, write_skips

    before = read_skips(folder)
    kept = [span for span in before if span[0] <= step]
    done = set_back(folder, step, ready=lambda: write_skips(folder, [*before, *spans]) if spans else None)
    if kept != before or spans:
        write_skips(folder, [*kept, *spans])
    left_out = "".join(f"; batches of steps {first} to {last} are left out" for first, last in spans)
    reason = f"asked for with trainingkit recover{left_out}"
    decisions.record(folder.decisions, step=step, choice="set back to step", value=step, reason=reason)
    if done.aside is not None:
        sys.stdout.write(f"Put aside: {', '.join(done.moved)}\n  in {done.aside}\n")
    journal = f" and {done.replayed} steps of the journal" if done.replayed else ""
    sys.stdout.write(f"A resume goes on from step {step}: the snapshot of step {done.snapshot_step}{journal}.\n")
    for first, last in spans:
        sys.stdout.write(f"It leaves out the batches of steps {first} to {last}.\n")
    sys.stdout.write(f"Continue:  trainingkit resume {folder.root}\n")


def _span(text: str, to_step: int | None) -> tuple[int, int]:
    from trainingkit.core.errors import ConfigError

    match = _SPAN.fullmatch(text)
    first, last = (int(match[1]), int(match[2])) if match else (0, -1)
    if match is None or last < first or to_step is None or first <= to_step:
        raise ConfigError(
            "These batches cannot be left out.",
            field="--skip-batches",
            found=text if to_step is not None else f"{text} without --to-step",
            expected="A..B, two steps after that of --to-step, A not after B",
            next_step="For example: --to-step 57 --skip-batches 58..60",
        )
    return first, last

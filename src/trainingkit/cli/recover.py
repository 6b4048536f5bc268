"""`trainingkit recover`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from trainingkit.cli.recover_asked import Skips, Span
    from trainingkit.core.runfolder import RunFolder
    from trainingkit.recovery.journal import Setback


def recover(
    run: Path,
    *,
    inspect: Annotated[bool, Parameter(negative="")] = False,
    to_step: int | None = None,
    skip_batches: Annotated[list[str] | None, Parameter(negative="", consume_multiple=False)] = None,
) -> int:
    """Show what a run can go back to, or set it back to a step.

    A resume goes by itself from the newest whole snapshot to the last step that the journal covers. To go back further,
    set the run back first: what is newer is put aside below RUN/aside, and nothing is deleted. Batches that were to be
    left out after that step are named, and no longer are.

    Examples:
      trainingkit recover runs/default-20261130-120000 --inspect
      trainingkit recover runs/default-20261130-120000 --to-step 57 --inspect
      trainingkit recover runs/default-20261130-120000 --to-step 57
      trainingkit recover runs/default-20261130-120000 --to-step 57 --skip-batches 58..60

    Parameters
    ----------
    run
        The run folder. No job may be at work in it, except for --inspect.
    inspect
        List snapshots, the journal's segments, their damage, and the steps that are covered. The default. With
        --to-step: say what setting back would do, and change nothing.
    to_step
        Make this the step that a resume goes on from.
    skip_batches
        With --to-step: leave out the batches that steps A to B would take next, written A..B. May be repeated.
    """
    from trainingkit.cli.finding import run_folder
    from trainingkit.cli.recover_asked import asked_span

    folder = run_folder(run)
    spans = [asked_span(text, to_step) for text in skip_batches or ()]
    if to_step is None or inspect:
        _show(folder, to_step, spans)
    else:
        with folder.locked():
            _set_back(folder, to_step, spans)
    return 0


def _show(folder: RunFolder, step: int | None, spans: list[Span]) -> None:
    from trainingkit.cli.recover_asked import Skips, lead_to, out_of_reach
    from trainingkit.cli.recover_print import print_survey, print_would
    from trainingkit.recovery.journal import survey
    from trainingkit.trainer.skipping import read_skips

    found = survey(folder)
    print_survey(found, folder)
    if step is None:
        return
    lead = lead_to(found, step)
    if lead is None:
        raise out_of_reach(found, folder, step)
    print_would(found, lead, folder, step, Skips.at(step, read_skips(folder), spans))


def _set_back(folder: RunFolder, step: int, spans: list[Span]) -> None:
    from trainingkit.cli.recover_asked import Skips
    from trainingkit.cli.recover_print import print_done
    from trainingkit.trainer.skipping import read_skips, write_skips

    before = read_skips(folder)
    skips = Skips.at(step, before, spans)
    done = _moved(folder, step, lambda: write_skips(folder, [*before, *spans]) if spans else None)
    if skips.dropped or spans:
        write_skips(folder, [*skips.kept, *spans])
    _note(folder, step, skips)
    print_done(done, folder, skips)


def _moved(folder: RunFolder, step: int, ready: Callable[[], object]) -> Setback:
    """Set back; a step that cannot be reached is bad input, and the error names all that can."""
    from trainingkit.cli.recover_asked import out_of_reach
    from trainingkit.core.errors import CheckpointError
    from trainingkit.recovery.journal import set_back, survey

    try:
        return set_back(folder, step, ready=ready)
    except CheckpointError as error:
        if error.field != "--to-step":
            raise
        raise out_of_reach(survey(folder), folder, step) from error


def _note(folder: RunFolder, step: int, skips: Skips) -> None:
    from trainingkit.cli.recover_print import spans_in_words
    from trainingkit.core import decisions

    left_out = "".join(f"; batches of steps {first} to {last} are left out" for first, last in skips.asked)
    dropped = f"; no longer left out: batches of {spans_in_words(skips.dropped)}" if skips.dropped else ""
    reason = f"asked for with trainingkit recover{left_out}{dropped}"
    decisions.record(folder.decisions, step=step, choice="set back to step", value=step, reason=reason)

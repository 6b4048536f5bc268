"""`trainingkit resume`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def resume(
    run: Path,
    *,
    set_: Annotated[list[str] | None, Parameter(name="--set", negative="", consume_multiple=False)] = None,
) -> int:
    """Continue a run from its newest whole snapshot, to the very sample where it stood.

    A damaged snapshot is reported and the one before it is used. Another number of workers goes on, too. Ends with the
    same codes as `train`.

    Examples:
      trainingkit resume runs/default-20261130-120000
      trainingkit resume runs/default-20261130-120000 --set run.steps=800 --set snapshot.every=20
      trainingkit resume runs/default-20261130-120000 --set workers=3

    Parameters
    ----------
    run
        The run folder.
    set_
        Change a setting of the run, as section.key=value; it is noted on the page. May be repeated. What the snapshot
        or the order of the data depends on (model, data, optimizer, seed) cannot change.
    """
    from trainingkit.cli.running import run_recipe
    from trainingkit.core.runfolder import RunFolder
    from trainingkit.recovery import newest_good
    from trainingkit.recovery.memory import left_in_memory
    from trainingkit.trainer.advice import no_whole_snapshot
    from trainingkit.trainer.changes import note, resumed_recipe

    folder = RunFolder.existing(run)
    recipe, changes = resumed_recipe(folder, set_ or ())
    if not any(folder.snapshots.glob("step-*")) and not left_in_memory(folder.snapshots):
        raise no_whole_snapshot(folder, [])

    def begin() -> None:
        if changes:
            good, _ = newest_good(folder.snapshots)
            note(folder, changes, step=good.step if good else 0)
        for change in changes:
            sys.stdout.write(f"Changed: {change}\n")

    return run_recipe(recipe, folder, resuming=True, on_begin=begin)

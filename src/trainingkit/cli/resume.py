"""`trainingkit resume`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def resume(
    run: Path,
    *,
    workers: str | None = None,
    set_: Annotated[list[str] | None, Parameter(name="--set", negative="", consume_multiple=False)] = None,
) -> int:
    """Continue a run from its newest whole snapshot, to the very sample where it stood.

    A damaged snapshot is reported and the one before it is used. Another number of workers goes on, too. Ends with the
    same codes as `train`.

    Examples:
      trainingkit resume runs/default-20261130-120000
      trainingkit resume runs/default-20261130-120000 --set run.steps=800 --set snapshot.every=20
      trainingkit resume runs/default-20261130-120000 --workers 3

    Parameters
    ----------
    run
        The run folder.
    workers
        Go on with so many workers, or with 2:4 as `train` does; the same as --set workers=N. A journal is of the old
        number and is not replayed then.
    set_
        Change a setting of the run, as section.key=value; it is noted on the page. May be repeated. What the snapshot
        or the order of the data depends on (model, data, optimizer, seed) cannot change.
    """
    from trainingkit.cli.asked import workers_overrides
    from trainingkit.cli.finding import run_folder
    from trainingkit.cli.interrupted import or_interrupted
    from trainingkit.cli.running import run_recipe
    from trainingkit.recovery import newest_good
    from trainingkit.recovery.memory import left_in_memory
    from trainingkit.trainer.advice import no_whole_snapshot
    from trainingkit.trainer.changes import note, resumed_recipe

    folder = run_folder(run)
    recipe, changes = resumed_recipe(folder, [*workers_overrides(workers), *(set_ or [])])
    if not any(folder.snapshots.glob("step-*")) and not left_in_memory(folder.snapshots):
        raise no_whole_snapshot(folder, [])

    def begin() -> None:
        if changes:
            good, _ = newest_good(folder.snapshots)
            note(folder, changes, step=good.step if good else 0)
        for change in changes:
            sys.stdout.write(f"Changed: {change}\n")

    return or_interrupted(
        folder, lambda: run_recipe(recipe, folder, resuming=True, on_begin=begin), otherwise="train again"
    )

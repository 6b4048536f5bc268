"""`trainingkit resume`."""

from __future__ import annotations

from pathlib import Path


def resume(run: Path) -> int:
    """Continue a run from its newest whole snapshot, to the very sample where it stood.

    A damaged snapshot is reported and the one before it is used. Ends with the same codes as `train`.

    Example: trainingkit resume runs/default-20261130-120000

    Parameters
    ----------
    run
        The run folder.
    """
    from trainingkit.cli.running import run_recipe
    from trainingkit.core.errors import CheckpointError
    from trainingkit.core.runfolder import RunFolder
    from trainingkit.trainer.recipe import load_run_recipe

    folder = RunFolder.existing(run)
    recipe = load_run_recipe(folder)
    if not any(folder.snapshots.glob("step-*")):
        raise CheckpointError(
            "This run has no snapshot to continue from.",
            field="RUN",
            found=str(run),
            expected="at least one folder snapshots/step-*",
            next_step=f"Train again with the same recipe: trainingkit train {run}/recipe.toml",
        )
    return run_recipe(recipe, folder, resuming=True)

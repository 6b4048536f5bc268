"""What a person does next with a run, in words that fit how it was made: by a recipe, or by a script of their own."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from trainingkit.core import toml
from trainingkit.core.errors import CheckpointError, ConfigError
from trainingkit.core.runfolder import RunFolder
from trainingkit.recovery import Found


def made_by_script(run: RunFolder) -> bool:
    """Whether `attach` made the run, so that only its script can continue it. Unknown counts as yes."""
    try:
        return "model" not in toml.load(run.recipe)
    except ConfigError:
        return True


def go_on(run: RunFolder) -> str:
    """How to continue the run from its newest whole snapshot, as the second half of a sentence."""
    if made_by_script(run):
        return f"start the script again with run.folder = {str(run.root)!r}"
    return f"continue it with `trainingkit resume {shlex.quote(str(run.root))}`"


def begin_again(run: RunFolder, *, taken: bool) -> str:
    """How to train anew what the run was to train.

    Args:
        taken: the folder holds snapshots already, so that a new one is needed.
    """
    if made_by_script(run):
        return "Start the script again" + (" with another run.folder" if taken else "")
    recipe = shlex.quote(str(run.recipe))
    return f"Train again: trainingkit train {recipe}" + (" --set run.folder=NEW" if taken else "")


def no_whole_snapshot(run: RunFolder, damaged: Sequence[Found]) -> CheckpointError:
    """The error of a run that cannot be continued: it has no snapshot, or none of them is whole.

    Args:
        damaged: what was found instead, as `newest_good` gives it.
    """
    taken = any(not found.unfinished for found in damaged)
    ways = begin_again(run, taken=taken) + (", or restore the folder from a backup" if taken else "")
    return CheckpointError(
        "No snapshot of this run is whole." if damaged else "This run has no snapshot.",
        field="snapshots",
        found=f"{len(damaged)} damaged: {damaged[0].problem}" if damaged else f"none in {run.root}",
        expected="at least one that passes its manifest",
        next_step=f"{ways}.",
    )

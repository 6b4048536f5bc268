"""What is checked before anything is started, so that bad input costs seconds and one message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainingkit.cluster.fit import check_workers_fit
from trainingkit.cluster.meeting import met_before
from trainingkit.cluster.place import find_place
from trainingkit.core.errors import RunFolderError
from trainingkit.core.runfolder import RunFolder

if TYPE_CHECKING:
    from trainingkit.core.datainfo import DataInfo
    from trainingkit.trainer.recipe import Recipe


def check_start(recipe: Recipe, run: RunFolder) -> DataInfo:
    """Open the data, count the model, look at memory and at the run folder.

    Raises:
        DataError, ModelError, ConfigError, RunFolderError: the first problem.
    """
    place = find_place()
    if any(run.snapshots.glob("step-*")) and not met_before(place, join_s=recipe.sync.join_s):
        raise _taken(run)
    info = recipe.data_section().open().info
    parameters = recipe.model_section().parameter_count(info)
    if place.alone:
        check_workers_fit(recipe.workers, parameters)
    return info


def _taken(run: RunFolder) -> RunFolderError:
    """The folder holds a run already; what to do depends on whether that run can be continued."""
    from trainingkit.recovery import newest_good
    from trainingkit.trainer.advice import go_on

    whole, _ = newest_good(run.snapshots)
    choose = "choose another run.folder."
    way_on = f"{go_on(run)}, or {choose}" if whole else choose
    return RunFolderError(
        "This run folder already holds snapshots of a run.",
        field="run.folder",
        found=str(run.root) + ("" if whole else ", none of them whole"),
        expected="a new folder",
        next_step=way_on[0].upper() + way_on[1:],
    )

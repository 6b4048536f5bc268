"""`trainingkit train`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def train(
    recipe: str = "default",
    *,
    workers: str | None = None,
    grace: str | None = None,
    set_: Annotated[list[str] | None, Parameter(name="--set", negative="", consume_multiple=False)] = None,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Train a model by a recipe, on several worker processes, and make a page of the run.

    Under torchrun or srun the same command joins that job instead of starting workers.

    Examples:
      trainingkit train
      trainingkit train my.toml --workers 4 --set optimizer.lr=0.001 --set run.steps=500
      trainingkit train my.toml --workers 2:4 --grace 90s
      trainingkit train --set data.kind=text --set 'data.path="books/"' --dry-run
      torchrun --nnodes 2 --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint HOST:29400 -m trainingkit train

    Ends with 0 when done, 1 when training failed, 2 on bad input, 75 when it was stopped and saved (SIGTERM, SIGUSR1,
    Ctrl-C, or a file called stop in the run folder).

    Parameters
    ----------
    recipe
        A TOML file, or the name of a bundled recipe. "default" trains a small decoder on Python's own source.
    workers
        Worker processes on this host; 1 trains without any process group. Default: what the recipe says. With 2:4, four
        are started, and when one dies the others are started again and go on, down to two of them.
    grace
        How long workers may take to finish a step and save after a signal, such as 90s; then they are killed.
    set_
        Override a setting of the recipe, as section.key=value. May be repeated.
    dry_run
        Check everything, print the resolved recipe and what would be trained, and stop.
    """
    from trainingkit.cli.asked import grace_override, workers_overrides
    from trainingkit.core.runfolder import RunFolder, new_run_path
    from trainingkit.trainer.recipe import load_recipe

    asked = [*workers_overrides(workers), *grace_override(grace)]
    loaded = load_recipe(recipe, [*asked, *(set_ or [])])
    if dry_run:
        from trainingkit.cli.dryrun import show

        return show(loaded)
    from trainingkit.cli.interrupted import or_interrupted
    from trainingkit.cli.preflight import check_start
    from trainingkit.cli.running import run_recipe

    run = RunFolder(Path(loaded.run.folder or new_run_path(Path("runs"), loaded.name)).absolute())
    check_start(loaded, run)
    return or_interrupted(run, lambda: run_recipe(loaded, run), otherwise="train again")

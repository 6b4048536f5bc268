"""`trainingkit train --dry-run`: everything that is known before training, and nothing started."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from trainingkit.cli.preflight import check_start
from trainingkit.cluster.fit import worker_bytes
from trainingkit.cluster.threads import threads_per_worker
from trainingkit.core.runfolder import RunFolder, new_run_path
from trainingkit.core.units import format_bytes, format_count

if TYPE_CHECKING:
    from trainingkit.trainer.recipe import Recipe


def show(recipe: Recipe) -> int:
    """Check the recipe as `train` would, print it resolved and what follows from it. Returns the exit code."""
    from trainingkit.trainer.recipe import resolved_text
    from trainingkit.trainer.session import RUNS

    run = RunFolder(recipe.run.folder or new_run_path(RUNS, recipe.name))
    info = check_start(recipe, run)
    parameters = recipe.model_section().parameter_count(info)
    samples = recipe.batch.size * recipe.step.accumulate * recipe.workers
    steps = recipe.run.steps or 0
    lines = [
        resolved_text(recipe).rstrip(),
        "",
        f"# data:     {info.name}; {info.train_samples} training and {info.validation_samples} validation samples",
        "# model:    " + (f"{format_count(parameters)} parameters" if parameters else "not counted before it is built"),
        f"# batch:    {samples} samples a step over {recipe.workers} workers"
        + (f", {samples * info.seq_len} tokens" if info.seq_len else ""),
        f"# length:   {steps} steps = {steps * samples / max(1, info.train_samples):.3g} passes of the data",
        f"# memory:   at least {format_bytes(worker_bytes(parameters))} a worker, activations not counted",
        f"# threads:  {threads_per_worker(recipe.workers, wanted=recipe.run.threads)} a worker",
        "# Nothing was started. Without --dry-run this recipe trains.",
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0

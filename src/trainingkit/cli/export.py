"""`trainingkit export`."""

from __future__ import annotations

import sys
from pathlib import Path


def export(run: Path, output: Path | None = None, *, step: int | None = None) -> int:
    """Write a run's trained model as a folder that transformers loads.

    Example: trainingkit export runs/default-20261130-120000 my-model
    Then, in Python: transformers.AutoModelForCausalLM.from_pretrained("my-model")

    Parameters
    ----------
    run
        The run folder.
    output
        A new or empty folder; default: RUN/export.
    step
        Which snapshot; default: the newest whole one.
    """
    from trainingkit.cli.finding import run_folder
    from trainingkit.models.export import export_pretrained
    from trainingkit.trainer.loading import load_trained

    trained = load_trained(run_folder(run).root, step=step)
    target = output or trained.run.root / "export"
    export_pretrained(trained.model, target)
    sys.stdout.write(f"Model of step {trained.step}: {target}\n")
    return 0

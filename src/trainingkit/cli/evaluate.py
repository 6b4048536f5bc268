"""`trainingkit eval`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def evaluate(
    run: Path,
    *,
    step: int | None = None,
    samples: int | None = None,
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Evaluate a run's trained model on its validation data.

    Examples:
      trainingkit eval runs/default-20261130-120000
      trainingkit eval runs/default-20261130-120000 --step 50 --json

    Parameters
    ----------
    run
        The run folder.
    step
        Which snapshot; default: the newest whole one.
    samples
        How many validation samples, evenly spread; default: all.
    json_
        Print one JSON object instead of a line.
    """
    from trainingkit.cli.finding import run_folder
    from trainingkit.core.errors import ConfigError
    from trainingkit.trainer.loading import evaluate_run

    if samples is not None and samples < 1:
        raise ConfigError(
            "There is nothing to evaluate on.",
            field="--samples",
            found=samples,
            expected="1 or more",
            next_step="Leave it out to take all validation samples.",
        )

    result = evaluate_run(run_folder(run).root, step=step, samples=samples)
    if json_:
        sys.stdout.write(json.dumps(result) + "\n")
    else:
        figures = "  ".join(f"{name} {value:.4f}" for name, value in result["metrics"].items())
        sys.stdout.write(f"step {result['step']}  {figures}  ({result['samples']} validation samples)\n")
    return 0

"""`trainingkit bench quality`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

CODECS = ("all|int4(block=64)", "topk(density=0.05, chunk=4096)|int4")


def bench_quality(
    *,
    recipe: str = "default",
    codec: Annotated[list[str] | None, Parameter(negative="", consume_multiple=False)] = None,
    seeds: int = 3,
    set_: Annotated[list[str] | None, Parameter(name="--set", negative="", consume_multiple=False)] = None,
    folder: Path = Path("runs/bench-quality"),
    json_: Annotated[Path | None, Parameter(name="--json")] = None,
) -> int:
    """Does squeezing cost loss? Train a recipe with plain DDP and with each codec, seed by seed, and compare.

    Each is a real run of `trainingkit train`; the default takes a quarter of an hour on two cores.

    Examples:
      trainingkit bench quality --json quality.json
      trainingkit bench quality --codec 'all|int8' --seeds 1 --set run.steps=50

    Parameters
    ----------
    recipe
        A TOML file, or the name of a bundled recipe.
    codec
        A codec to compare with plain DDP. May be repeated. Default: int4 of everything, and the top 5 % in int4.
    seeds
        How many seeds, from 0 on.
    set_
        Override a setting of the recipe in all runs, as section.key=value. May be repeated.
    folder
        Where the runs are kept; each needs a new folder in it.
    json_
        Write the result there.
    """
    from trainingkit.bench import quality, result
    from trainingkit.core.runfolder import new_run_path

    made = quality.run(
        new_run_path(folder.parent.absolute(), folder.name),
        recipe=recipe,
        codecs=codec or CODECS,
        seeds=range(seeds),
        overrides=set_ or (),
        command="trainingkit bench quality",
        say=lambda text: print(text, flush=True),  # noqa: T201
    )
    for row in made.rows:
        sys.stdout.write(f"{row['codec']:<42} seed {row['seed']}  loss {row['loss']:.4f}\n")
    for check in made.checks:
        sys.stdout.write(
            f"{check.name}  {check.value:.4f}  [{check.low}, {check.high}]  {check.goal}  holds: {check.holds}\n"
        )
    if json_ is not None:
        result.write(made, json_)
    return 0

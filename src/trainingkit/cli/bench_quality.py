"""`trainingkit bench quality`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from trainingkit.cli.bench_end import command_typed, conclude

BESIDE = "topk(density=0.05, chunk=4096)|int4(block=64)"
"""Shown beside the default codec, without a goal."""


def bench_quality(
    *,
    recipe: str = "default",
    codec: Annotated[list[str] | None, Parameter(negative="", consume_multiple=False)] = None,
    seeds: int = 3,
    set_: Annotated[list[str] | None, Parameter(name="--set", negative="", consume_multiple=False)] = None,
    folder: Path = Path("runs/bench-quality"),
    json_: Annotated[Path | None, Parameter(name="--json")] = None,
    page: Path | None = None,
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
        A codec that must stay within 1 % of plain DDP's loss. May be repeated. Default: the default codec, and beside
        it, without a goal, the top 5 % in int4.
    seeds
        How many seeds, from 0 on.
    set_
        Override a setting of the recipe in all runs, as section.key=value. May be repeated.
    folder
        Where the runs are kept; each needs a new folder in it.
    json_
        Write the result there.
    page
        Write a page with tables there.
    """
    from trainingkit.bench import quality
    from trainingkit.core.runfolder import new_run_path
    from trainingkit.sync.section import DEFAULT_CODEC

    made = quality.run(
        new_run_path(folder.parent.absolute(), folder.name),
        recipe=recipe,
        codecs=codec or (DEFAULT_CODEC,),
        beside=() if codec else (BESIDE,),
        seeds=range(seeds),
        overrides=set_ or (),
        command=command_typed(),
        say=_say,
    )
    return conclude(made, json_, page)


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")

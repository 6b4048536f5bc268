"""`trainingkit bench recovery`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from trainingkit.cli.bench_end import command_typed, conclude


def bench_recovery(
    *,
    ranks: int = 3,
    scale: str = "full",
    intervals: str = "30,10",
    rounds: int = 5,
    seeds: int = 5,
    json_: Annotated[Path | None, Parameter(name="--json")] = None,
    page: Path | None = None,
) -> int:
    """What do journal and snapshots cost, how quickly is a run replayed, and does it learn as well afterwards?

    Copies of a training take turns in the same processes, half of them with journal and snapshots. Then real runs
    are killed and resumed. About half an hour on two cores.

    Examples:
      trainingkit bench recovery --json recovery.json
      trainingkit bench recovery --scale tiny --intervals 2 --rounds 2 --seeds 0

    Ends with 0 when every check holds, with 1 when one does not.

    Parameters
    ----------
    ranks
        Worker processes.
    scale
        "full": the default recipe's model. "small", "tiny": for a try.
    intervals
        Seconds between snapshots, separated by commas; the goal is for the first.
    rounds
        Blocks of each copy for each interval.
    seeds
        Seeds that are trained undisturbed, and killed and resumed; 0 leaves this part out.
    json_
        Write the result there.
    page
        Write a page with tables there.
    """
    from trainingkit.bench.recovery.run import run
    from trainingkit.bench.recovery.spec import RecoverySpec
    from trainingkit.core.errors import ConfigError
    from trainingkit.core.section import check

    try:
        seconds = [float(word) for word in intervals.split(",")]
    except ValueError as error:
        raise ConfigError(
            "These intervals cannot be read.",
            field="--intervals",
            found=intervals,
            expected="seconds, separated by commas",
            next_step="For example: --intervals 30,10",
        ) from error
    asked = {"ranks": ranks, "scale": scale, "intervals_s": seconds, "rounds": rounds, "seeds": seeds}
    spec = check(RecoverySpec, asked)
    return conclude(run(spec, command=command_typed(), say=_say), json_, page)


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")

"""`trainingkit bench changes`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from trainingkit.cli.bench_end import command_typed, conclude


def bench_changes(
    *,
    hosts: int = 2,
    rates: str = "100mbit,10mbit,1gbit",
    steps: int = 60,
    scale: str = "full",
    seed: int = 0,
    json_: Annotated[Path | None, Parameter(name="--json")] = None,
    page: Path | None = None,
) -> int:
    """Does the controller follow a link that changes while a job trains? Does a replay of its moves give the same bits?

    Hosts are network namespaces of this machine, and the kernel shapes their links. The job trains under codec "auto"
    for some steps at each rate; then a second copy repeats the moves on open links. About ten minutes at full scale.

    Examples:
      trainingkit bench changes --json changes.json --page changes.html
      trainingkit bench changes --rates 100mbit,25mbit,100mbit --steps 80
      trainingkit bench changes --scale tiny --steps 40

    Ends with 0 when every check holds, with 1 when one does not.

    Parameters
    ----------
    hosts
        Hosts in the lab, one process on each.
    rates
        Rates of each host's link, one after the other, separated by commas.
    steps
        Steps at each rate.
    scale
        "full": a 10.8 M-parameter decoder, 8 x 256 bytes on each host. "tiny": for a try.
    seed
        Of weights and data order.
    json_
        Write the result there.
    page
        Write a page with tables there.
    """
    from trainingkit.bench.changes.run import run
    from trainingkit.bench.changes.spec import ChangesSpec
    from trainingkit.cli.bench_progress import progress
    from trainingkit.core.section import check

    spec = check(ChangesSpec, {"hosts": hosts, "rates": rates.split(","), "steps": steps, "scale": scale, "seed": seed})
    with progress() as show:
        result = run(spec, command=command_typed(), show=show)
    return conclude(result, json_, page)

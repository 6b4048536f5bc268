"""`trainingkit bench advise`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from trainingkit.cli.bench_end import command_typed, conclude


def bench_advise(
    *,
    hosts: int = 4,
    link: Annotated[list[str] | None, Parameter(negative="", consume_multiple=False)] = None,
    rounds: int = 5,
    scale: str = "full",
    seed: int = 0,
    json_: Annotated[Path | None, Parameter(name="--json")] = None,
    page: Path | None = None,
) -> int:
    """Is advice true? What `advise` predicts for a step of each rung, beside the steps that a lab then measures.

    The same ranks measure (steps without an exchange, codecs, link), predict, and then take turns with each rung of the
    ladder. Needs root or user namespaces; about ten minutes.

    Examples:
      trainingkit bench advise --json advise.json
      trainingkit bench advise --link 25mbit --rounds 7
      trainingkit bench advise --hosts 2 --scale tiny --link 100mbit

    Ends with 0 when every check holds, with 1 when one does not.

    Parameters
    ----------
    hosts
        Hosts in the lab, one process on each.
    link
        Rate of each host's link, both ways. May be repeated. Default: 100mbit and 25mbit.
    rounds
        Turns of each rung on each link. Fewer than five give no bounds, so that no check can hold.
    scale
        "full" or "tiny": the job of `trainingkit bench network`.
    seed
        Of weights, data order and turns.
    json_
        Where to write the result.
    page
        Where to write the page, one HTML file.
    """
    from trainingkit.bench.advise.proof import ProofSpec
    from trainingkit.bench.advise.proof_run import run
    from trainingkit.cli.bench_progress import progress
    from trainingkit.core.section import check

    values = {"hosts": hosts, "rounds": rounds, "scale": scale, "seed": seed, **({"links": link} if link else {})}
    spec = check(ProofSpec, values)
    with progress() as show:
        result = run(spec, command=command_typed(), show=show)
    return conclude(result, json_, page)

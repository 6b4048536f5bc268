"""`trainingkit bench exchange`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from trainingkit.cli.bench_end import command_typed, conclude

BYTES_PER_VALUE = 4


def bench_exchange(
    *,
    codec: str | None = None,
    size: str = "16MiB",
    bucket: str = "2MiB",
    islands: str = "2+2",
    link: str = "1gbit",
    between: str = "20mbit",
    rounds: int = 15,
    repeats: int = 5,
    minutes: float = 1.5,
    footprints: bool = True,
    lab: bool = True,
    json_: Annotated[Path | None, Parameter(name="--json")] = None,
    page: Path | None = None,
) -> int:
    """What an exchange costs with more ranks, and what two levels save where hosts stand on islands.

    Bytes and RAM of one rank, with 2, 4 and 8 real ranks on this host and 4 to 64 simulated ones in one process; then
    the flat and the hierarchical exchange, turn by turn, between islands of hosts behind a slow link. No model is
    trained. The hosts are network namespaces of this machine, which needs root or user namespaces. About five minutes.

    Examples:
      trainingkit bench exchange --json exchange.json
      trainingkit bench exchange --no-footprints --islands 3+3 --between 50mbit
      trainingkit bench exchange --no-lab --codec "topk(density=0.05, chunk=4096)|int4" --bucket 16MiB --size 32MiB

    Ends with 0 when every check holds, with 1 when one does not.

    Parameters
    ----------
    codec
        What travels. Default: that of `trainingkit train`.
    size
        Of the gradient, in fp32.
    bucket
        Of a bucket, in fp32.
    islands
        Hosts of each island, all alike, for example 2+2 or 3+3.
    link
        Rate of each host's link.
    between
        Rate of each island's uplink.
    rounds
        At least so many turns of each; more while the flat exchange against itself is not 1.00 +- 0.02.
    repeats
        How often the footprints of 4 and of 64 ranks are taken.
    minutes
        What the turns may take together.
    footprints
        Whether bytes and RAM are measured.
    lab
        Whether islands are.
    json_
        Write the result there.
    page
        Write a page with the tables there.
    """
    from trainingkit.bench.exchange.run import Wanted, run
    from trainingkit.bench.exchange.spec import Task
    from trainingkit.core.section import check
    from trainingkit.core.units import parse_bytes
    from trainingkit.netlab.spec import parse_sizes

    values: dict[str, Any] = {"how": "", "ranks": 0, "rounds": rounds, "most_s": 60 * minutes}
    values["elements"] = parse_bytes(size, field="--size") // BYTES_PER_VALUE
    values["bucket_elements"] = parse_bytes(bucket, field="--bucket") // BYTES_PER_VALUE
    task = check(Task, values | ({"codec": codec} if codec is not None else {}))
    wanted = Wanted(task, repeats=repeats, link=link, between=between, islands=parse_sizes(islands) if lab else ())
    if not footprints:
        wanted = Wanted(task, (), (), 0, wanted.islands, link, between)
    result = run(wanted, command=command_typed(), say=_say)
    return conclude(result, json_, page)


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")

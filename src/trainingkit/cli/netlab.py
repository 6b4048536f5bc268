"""`trainingkit netlab`: run a command on the hosts of a network that does not exist."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.table import Table

    from trainingkit.netlab import Lab, PairRate, RateMatrix

SIGNAL_BASE = 128


def netlab(
    *command: Annotated[str, Parameter(allow_leading_hyphen=True)],
    hosts: int | None = None,
    link: str | None = None,
    links: str | None = None,
    islands: str | None = None,
    between: str | None = None,
    delay: str | None = None,
    between_delay: str | None = None,
    loss: str | None = None,
) -> int:
    """Run a command once on each host of a shaped network, as the ranks of one job; without a command, measure it.

    Hosts are network namespaces of this machine; nothing of them remains afterwards. The command gets the environment
    that torchrun gives (RANK, WORLD_SIZE, MASTER_ADDR, ...). Needs Linux, iproute2, and root or user namespaces.

    Examples:
      trainingkit netlab --hosts 4 --link 100mbit
      trainingkit netlab --hosts 4 --link 100mbit --delay 20ms -- python train.py
      trainingkit netlab --links 100mbit,100mbit,20mbit,100mbit -- trainingkit train
      trainingkit netlab --islands 2 --between 20mbit
      trainingkit netlab --islands 2+2 --link 1gbit --between 20mbit --between-delay 30ms -- python train.py

    Ends with the exit code of the rank that failed first (128 + N when signal N ended it).

    Parameters
    ----------
    command
        What to run on every host, after "--". Without it the rate from each host to each other is measured and printed.
    hosts
        How many; default: as many as --links or --islands say, else 2.
    link
        Rate of every host's link, both ways: "100mbit", "2.5gbit", "unshaped" (the default).
    links
        One rate for each host, separated by commas.
    islands
        Groups of hosts behind a shared uplink each, for example 2+2; a number alone is how many, all of one size.
    between
        Rate of each island's uplink.
    delay
        One-way delay from host to host, for example 20ms; a round trip takes twice that.
    between_delay
        One-way delay that is added between hosts of different islands.
    loss
        Share of the frames that are lost on their way out of each host, for example 1%.
    """
    from trainingkit.netlab import Lab, spec_from_texts

    spec = spec_from_texts(
        hosts=hosts,
        link=link,
        links=links,
        islands=islands,
        between=between,
        delay=delay,
        between_delay=between_delay,
        loss=loss,
    )
    with Lab(spec) as lab:
        for note in lab.notes:
            sys.stderr.write(f"Note: {note}\n")
        if command:
            return _run(lab, command)
        return _measure(lab)


def _run(lab: Lab, command: tuple[str, ...]) -> int:
    from trainingkit.core.exitcodes import DONE

    def show(rank: int, stream: str, line: str) -> None:
        target = sys.stderr if stream == "stderr" else sys.stdout
        target.write(f"{lab.name(rank)} | {line}\n")
        target.flush()

    failed = lab.launch(command, on_line=show, check=False).first_failed
    if failed is None:
        return DONE
    how = f"was ended by signal {-failed.code}" if failed.code < 0 else f"ended with exit code {failed.code}"
    sys.stderr.write(f"error: rank {failed.rank} on {lab.name(failed.rank)} failed first: it {how}.\n")
    return failed.code if failed.code > 0 else SIGNAL_BASE - failed.code


def _measure(lab: Lab) -> int:
    from rich.console import Console

    from trainingkit.core.exitcodes import DONE
    from trainingkit.netlab import measure_rates

    matrix = measure_rates(lab)
    console = Console(highlight=False)
    console.print(_table(lab, matrix, "Mbit/s of TCP payload", lambda pair: f"{pair.payload_bps / 1e6:.1f}"))
    console.print(_table(lab, matrix, "Round trip, ms", lambda pair: f"{pair.round_trip_s * 1e3:.2f}"))
    console.print("One stream at a time. Of a shaped link's rate, headers take 4.4 %.", markup=False)
    return DONE


def _table(lab: Lab, matrix: RateMatrix, title: str, text: Callable[[PairRate], str]) -> Table:
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    table.add_column("from \\ to")
    for host in lab.hosts:
        table.add_column(lab.name(host), justify="right")
    for host, row in zip(lab.hosts, matrix.pairs, strict=True):
        table.add_row(lab.name(host), *("-" if pair is None else text(pair) for pair in row))
    return table

"""The probe's inventory on the screen: hosts, matrix of links, collectives, who is out of line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from trainingkit.cli.bench_print import print_table
from trainingkit.core.units import format_bytes, format_seconds
from trainingkit.report.tables import Table


def print_inventory(table: dict[str, Any]) -> None:
    """Print it to stdout."""
    print_table(_hosts(table["hosts"]))
    ranks = [host["rank"] for host in table["hosts"]]
    if table["links"]:
        links = {(link["source"], link["target"]): link for link in table["links"]}
        print_table(_matrix("Mbit/s, from row to column", ranks, links, _rate))
        print_table(_matrix("Latency, one way", ranks, links, _latency))
    if table["collectives"]:
        print_table(_collectives(table["collectives"]))
    for one, other in table["not_measured"]:
        sys.stdout.write(f"No time for ranks {one} and {other}: raise --seconds.\n")
    for sentence in table["odd"] or ["Nothing is out of line."] if len(ranks) > 2 else []:
        sys.stdout.write(sentence + "\n")


def _hosts(hosts: list[dict[str, Any]]) -> Table:
    columns = ("rank", "host", "cores", "threads", "memory", "fp32 GFLOP/s", "bf16 GFLOP/s", "copy GB/s")
    rows = tuple(
        (
            str(host["rank"]),
            host["name"],
            str(host["cores"]),
            str(host["threads"]),
            format_bytes(host["ram_bytes"]),
            f"{host['gemm_fp32_gflops']:.4g}",
            f"{host['gemm_bf16_gflops']:.4g}",
            f"{host['copy_gb_per_s']:.3g}",
        )
        for host in hosts
    )
    return Table("Hosts", columns, rows)


def _matrix(title: str, ranks: list[int], links: dict[tuple[int, int], Any], show: Callable[[Any], str]) -> Table:
    rows = tuple(
        (str(source), *(show(links[source, target]) if (source, target) in links else "-" for target in ranks))
        for source in ranks
    )
    return Table(title, ("rank", *map(str, ranks)), rows)


def _rate(link: dict[str, Any]) -> str:
    return f"{link['bandwidth_bps'] / 1e6:.4g}"


def _latency(link: dict[str, Any]) -> str:
    return format_seconds(link["latency_s"])


def _collectives(collectives: list[dict[str, Any]]) -> Table:
    rows = tuple(
        (format_bytes(each["n_bytes"]), format_seconds(each["seconds"]), f"{each['rate_bps'] / 1e6:.4g}")
        for each in collectives
    )
    return Table("All-reduce by size", ("size", "time", "Mbit/s"), rows)

"""`trainingkit bench ...`: side-by-side measurements with bounds; each writes the shared JSON."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

from trainingkit.cli.bench_end import command_typed, conclude

BENCH_HELP = """Measure side by side, with 90 % intervals.

Example: trainingkit bench network --hosts 4 --link 100mbit --page network.html"""


def bench_network(
    *,
    hosts: int = 4,
    link: str = "100mbit",
    delay: str = "0ms",
    codec: str | None = None,
    contenders: str | None = None,
    rounds: int = 12,
    minutes: float = 4.0,
    loss_steps: int = 40,
    steps_per_turn: int = 1,
    max_every: int | None = None,
    scale: str = "full",
    seed: int = 0,
    json: Path | None = None,
    page: Path | None = None,
) -> int:
    """Train on hosts behind slow links: no communication, plain DDP, bf16, PowerSGD and ours, turn by turn.

    The hosts are network namespaces of this machine, and the kernel shapes their links. All contenders live in the
    same processes and alternate, so ratios are taken within a round. Needs root or user namespaces; about the given
    minutes, plus one for the start.

    Examples:
      trainingkit bench network --hosts 4 --link 100mbit --json network.json --page network.html
      trainingkit bench network --link 100mbit --delay 20ms --minutes 6
      trainingkit bench network --codec auto --link 25mbit --contenders "plain,all|int4,all|int3+normalised"
      trainingkit bench network --link unshaped --loss-steps 0
      trainingkit bench network --hosts 2 --scale tiny --rounds 3 --minutes 0.2

    Ends with 0 when every check holds, with 1 when one does not or the machine is too noisy to tell.

    Parameters
    ----------
    hosts
        Hosts in the lab, one process on each.
    link
        Rate of each host's link, both ways, or "unshaped".
    delay
        One-way delay between two hosts.
    codec
        What ours sends; "auto": what the controller chooses, after it has settled. Default: all|int4(block=64).
    contenders
        Others, separated by commas: names, codecs such as "all|int8" or "all|int3+normalised", or "every(4)|all|int4",
        whose turns are whole rounds; "+muon" at the end takes another optimizer. Default:
        plain,bf16,powersgd-2,powersgd-4.
    rounds
        At least so many rounds; more are added while no communication against itself is not 1.00 +- 0.02.
    minutes
        What turns and losses may take together.
    loss_steps
        Steps after which losses are compared; 0: only those that the turns make.
    steps_per_turn
        Steps of a contender before the next one's turn.
    max_every
        With codec "auto": at most so many steps from one exchange to the next, wherever that is faster.
    scale
        "full": a 10.8 M-parameter decoder, 8 x 256 bytes on each host. "tiny": for a try.
    seed
        Of weights, data order and turns.
    json
        Where to write the result.
    page
        Where to write the page, one HTML file.
    """
    from trainingkit.bench.contender import split_names
    from trainingkit.bench.network.run import run
    from trainingkit.bench.network.spec import NetworkSpec
    from trainingkit.cli.bench_progress import progress
    from trainingkit.core.section import check
    from trainingkit.core.units import parse_seconds

    given = {"codec": codec, "contenders": split_names(contenders) if contenders else None, "max_every": max_every}
    values = {name: value for name, value in given.items() if value is not None}
    values |= {"hosts": hosts, "link": link, "delay_s": parse_seconds(delay, field="--delay"), "scale": scale}
    values |= {"rounds": rounds, "minutes": minutes, "loss_steps": loss_steps, "steps_per_turn": steps_per_turn}
    spec = check(NetworkSpec, {**values, "seed": seed})
    with progress() as show:
        result = run(spec, command=command_typed(), show=show)
    return conclude(result, json, page)


def bench_codec(
    *,
    size: str = "64MiB",
    rounds: int = 15,
    device: Literal["cpu", "cuda"] = "cpu",
    json: Path | None = None,
    page: Path | None = None,
) -> int:
    """Encode and decode against copying the same tensor, on one thread or on a GPU, turn by turn.

    Examples:
      trainingkit bench codec --json codec.json
      trainingkit bench codec --size 8MiB --rounds 5
      trainingkit bench codec --device cuda --size 1GiB

    Ends with 0 when every check holds, with 1 when one does not.

    Parameters
    ----------
    size
        Size of the fp32 tensor.
    rounds
        Turns of each contender.
    device
        "cpu": processor time against a copy. "cuda": share of the GPU's copy bandwidth.
    json
        Where to write the result.
    page
        Where to write the page, one HTML file.
    """
    from trainingkit.bench import codec, triton_codec
    from trainingkit.bench.codec_result import result_of
    from trainingkit.core.units import parse_bytes

    size_bytes = parse_bytes(size, field="--size")
    if device == "cuda":
        return conclude(triton_codec.run(size_bytes, rounds, command=command_typed()), json, page)
    measured = codec.run(size_bytes=size_bytes, rounds=rounds)
    return conclude(result_of(measured, command=command_typed()), json, page)


def bench_page(results: list[Path], *, output: Path, title: str = "Benchmark") -> None:
    """Make a page from results: HTML from one, or Markdown over several, by the output's ending.

    The plots of a frontier become SVG files beside the Markdown page.

    Examples:
      trainingkit bench page network.json --output network.html
      trainingkit bench page benchmarks/results/network-*.json --title Network --output docs/benchmarks/network.md

    Parameters
    ----------
    results
        Files that `--json` wrote.
    output
        A file that ends with .html or .md.
    title
        Heading of the Markdown page.
    """
    from trainingkit.bench.result import read
    from trainingkit.core.errors import ConfigError
    from trainingkit.core.files import write_atomic
    from trainingkit.report.benchmarkdown import render_markdown
    from trainingkit.report.benchpage import write_bench_page
    from trainingkit.report.benchpictures import pictures

    found = [read(path) for path in results]
    if output.suffix == ".md":
        try:
            for name, picture in pictures(found).items():
                write_atomic(output.with_name(name), picture)
            write_atomic(output, render_markdown(title, found))
        except OSError as error:
            raise ConfigError(
                f"The page cannot be written: {error.strerror}.",
                field="--output",
                found=str(output),
                expected="a file name in a folder that can be written",
                next_step="Make the folder, or choose another.",
            ) from error
    elif output.suffix == ".html" and len(found) == 1:
        write_bench_page(found[0], output)
    else:
        raise ConfigError(
            "There is no such page.",
            field="--output",
            found=f"{output.name} from {len(found)} results",
            expected="FILE.md from any number of results, or FILE.html from one",
            next_step="End --output with .md, or give one result for .html.",
        )
    sys.stdout.write(f"The page is {output}\n")

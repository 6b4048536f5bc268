"""The asking side of the exchange bench: starts workers, one job after the other, and makes the result."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainingkit.bench.exchange.footprint import Footprint
from trainingkit.bench.exchange.spec import BASE_RANKS, ISLANDS, MOST_RANKS, REAL, SIMULATED, Task
from trainingkit.bench.exchange.summary import Figures, summarise
from trainingkit.bench.exchange.worker import TASK, measured_path
from trainingkit.bench.result import Result
from trainingkit.cluster.launch import launch
from trainingkit.codec import parse
from trainingkit.core.errors import ClusterError, ConfigError
from trainingkit.netlab import Lab, LabSpec
from trainingkit.netlab.rates import parse_rate

WORKER = "trainingkit.bench.exchange.worker"
GRACE_S = 5.0
DEADLINE_S = 600.0


@dataclass(frozen=True)
class Wanted:
    """What is measured.

    Args:
        real, simulated: numbers of ranks, one footprint each.
        repeats: how often the two footprints that are compared are taken.
        islands: hosts of each island in the lab; empty: no lab.
        link, between: rates of the hosts' links, and of the islands' uplinks.
    """

    task: Task
    real: tuple[int, ...] = (2, 4, 8)
    simulated: tuple[int, ...] = (BASE_RANKS, 16, 32, MOST_RANKS)
    repeats: int = 5
    islands: tuple[int, ...] = (2, 2)
    link: str = "1gbit"
    between: str = "20mbit"


@dataclass
class _Progress:
    say: Callable[[str], None]
    footprints: dict[tuple[str, int], list[Footprint]] = field(default_factory=dict)

    def add(self, task: Task, found: Footprint) -> None:
        self.footprints.setdefault((task.how, task.ranks), []).append(found)


def run(wanted: Wanted, *, command: str, say: Callable[[str], None] = lambda text: None) -> Result:
    """Measure, and make the shared result.

    Args:
        command: what a person types to get it again.
        say: told before each job.

    Raises:
        ConfigError: the codec or a rate cannot be read, or the numbers of ranks leave nothing to compare.
        ClusterError: a worker failed, or no lab can be made here.
    """
    _check(wanted)
    done = _Progress(say)
    for ranks in wanted.real:
        say(f"{ranks} real ranks")
        done.add(*_real(_task(wanted, REAL, ranks)))
    for ranks in wanted.simulated:
        if ranks not in (BASE_RANKS, MOST_RANKS):
            say(f"{ranks} simulated ranks")
            done.add(*_simulated(_task(wanted, SIMULATED, ranks)))
    for number in range(wanted.repeats):
        for ranks in (BASE_RANKS, MOST_RANKS):
            say(f"{ranks} simulated ranks, {number + 1} of {wanted.repeats}")
            done.add(*_simulated(_task(wanted, SIMULATED, ranks)))
    turns = _lab(wanted, say) if wanted.islands else None
    return summarise(wanted.task, Figures(done.footprints, turns), _facts(wanted), command=command)


def _check(wanted: Wanted) -> None:
    parse(wanted.task.codec, field="--codec")
    parse_rate(wanted.link, field="--link")
    parse_rate(wanted.between, field="--between")
    if len(set(wanted.islands)) > 1 or len(wanted.islands) == 1 or (wanted.islands and wanted.islands[0] < 2):
        raise ConfigError(
            "These islands leave nothing to compare.",
            field="--islands",
            found="+".join(map(str, wanted.islands)),
            expected="two or more of the same size, of two hosts or more, for example 2+2",
            next_step="Change the sizes, or leave the option out.",
        )


def _task(wanted: Wanted, how: str, ranks: int) -> Task:
    return wanted.task.model_copy(update={"how": how, "ranks": ranks})


def _facts(wanted: Wanted) -> dict[str, Any]:
    task = wanted.task
    facts: dict[str, Any] = {"codec": task.codec, "elements": task.elements, "bucket_elements": task.bucket_elements}
    if wanted.islands:
        facts |= {"islands": "+".join(map(str, wanted.islands)), "link": wanted.link, "between": wanted.between}
    return facts


def _real(task: Task) -> tuple[Task, Footprint]:
    with _folder(task) as path:
        folder = Path(path)
        ended = launch(("-m", WORKER, str(folder)), workers=task.ranks, threads=1, grace_s=GRACE_S)
        if ended.crashed or ended.signal:
            raise ClusterError(
                "A worker of the bench failed.",
                field=f"{task.ranks} ranks",
                found=str(ended.crashed or ended.signal),
                next_step="Its own words are above; try fewer ranks or a smaller --size.",
            )
        ranks = [_read(folder, rank) for rank in range(task.ranks)]
    most = max(found["ram_bytes"] for found in ranks)
    return task, Footprint(max(found["sent_bytes"] for found in ranks), most)


def _simulated(task: Task) -> tuple[Task, Footprint]:
    with _folder(task) as path:
        argv = [sys.executable, "-m", WORKER, path]
        ended = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=DEADLINE_S)
        if ended.returncode != 0:
            raise ClusterError(
                "The simulation of the bench failed.",
                field=f"{task.ranks} simulated ranks",
                found=ended.stderr.strip()[-2000:],
                next_step="Try a smaller --size.",
            )
        return task, Footprint(**_read(Path(path), 0))


def _lab(wanted: Wanted, say: Callable[[str], None]) -> dict[str, Any]:
    hosts = sum(wanted.islands)
    starts = [sum(wanted.islands[:island]) for island in range(len(wanted.islands))]
    islands = [list(range(start, start + size)) for start, size in zip(starts, wanted.islands, strict=True)]
    task = _task(wanted, ISLANDS, hosts).model_copy(update={"islands": islands})
    spec = LabSpec(hosts=hosts, islands=wanted.islands, link=wanted.link, between=wanted.between)
    say(f"islands {'+'.join(map(str, wanted.islands))}, {wanted.between} between them")
    with Lab(spec) as lab, _folder(task) as path:
        deadline_s = DEADLINE_S + task.most_s
        lab.launch([sys.executable, "-m", WORKER, path], deadline_s=deadline_s, env={"OMP_NUM_THREADS": "1"})
        return _read(Path(path), 0)


def _folder(task: Task) -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory(prefix="trainingkit-bench-")
    (Path(folder.name) / TASK).write_text(task.model_dump_json(), encoding="utf-8")
    return folder


def _read(folder: Path, rank: int) -> dict[str, Any]:
    return json.loads(measured_path(folder, rank).read_text(encoding="utf-8"))

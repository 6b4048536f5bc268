"""The asking side of the network bench: the lab, the workers in it, the gates that change its links.

A contender that kills its process costs a second try without it.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from trainingkit.bench.contender import builder_of
from trainingkit.bench.naming import read_name
from trainingkit.bench.network.spec import Measured, NetworkSpec
from trainingkit.bench.network.stage import SHAPE, Stage
from trainingkit.bench.network.summary import summarise
from trainingkit.bench.result import Result
from trainingkit.codec import parse
from trainingkit.core.errors import ClusterError, ConfigError
from trainingkit.netlab import JobResult, Lab, LabSpec
from trainingkit.netlab.rates import UNSHAPED, parse_rate
from trainingkit.sync.section import AUTO_CODEC, NO_CODEC

WORKER = "trainingkit.bench.network.worker"
POLL_S = 0.05
START_S = 1200.0
"""What start and warm-up may take on top of the spec's minutes."""


@dataclass(frozen=True)
class Glance:
    """What the bench is doing.

    Args:
        part: "warm-up", "timing" or "losses".
        contender: whose turn it is.
        done: share of the part that is done, where it is known.
        left_s: seconds that the part still takes, by its pace so far.
        text: the figure so far, for people.
    """

    part: str
    contender: str
    done: float | None
    left_s: float | None
    text: str = ""


Show = Callable[[Glance], None]


def run(spec: NetworkSpec, *, command: str, show: Show = lambda glance: None) -> Result:
    """Measure, and make the shared result.

    Args:
        command: what a person types to get it again.
        show: called when something has changed.

    Raises:
        ClusterError: no lab can be made here, or the reference or the judged contender failed.
        ConfigError: the spec cannot be used.
    """
    return summarise(spec, measure(spec, show=show), command=command)


def measure(spec: NetworkSpec, *, show: Show = lambda glance: None) -> Measured:
    """What the workers measure in a lab.

    Raises:
        ClusterError: no lab can be made here, or the reference or the judged contender failed.
        ConfigError: the spec cannot be used.
    """
    _check(spec)
    lab_spec = LabSpec(hosts=spec.hosts, link=UNSHAPED, delay_s=spec.delay_s)
    dropped: dict[str, str] = {}
    with Lab(lab_spec) as lab:
        while True:
            left = [name for name in spec.contenders if name not in dropped]
            outcome = _attempt(lab, spec.model_copy(update={"contenders": left}), show)
            if isinstance(outcome, Measured):
                break
            if outcome.contender not in left:
                raise outcome.error
            dropped[outcome.contender] = f"it ended the process. {outcome.error.problem}"
    outcome.labels |= {name: name for name in dropped}
    outcome.failed |= dropped
    return outcome


def _check(spec: NetworkSpec) -> None:
    """Refuse what cannot be run before anything is started."""
    spec.job()
    parse_rate(spec.link, field="--link")
    if spec.codec not in (NO_CODEC, AUTO_CODEC):
        parse(spec.codec, field="--codec")
    for name in spec.contenders:
        builder_of(read_name(name).way)
    if spec.hosts < 2:
        raise ConfigError(
            "A network needs two hosts.",
            field="--hosts",
            found=spec.hosts,
            expected="2 or more",
            next_step="Raise --hosts, or leave it out for four.",
        )


@dataclass(frozen=True)
class _Crash:
    """A worker died, and whose turn it was."""

    contender: str
    error: ClusterError


def _attempt(lab: Lab, spec: NetworkSpec, show: Show) -> Measured | _Crash:
    with tempfile.TemporaryDirectory(prefix="trainingkit-bench-") as folder, ThreadPoolExecutor(1) as pool:
        stage = Stage(Path(folder))
        stage.spec.write_text(spec.model_dump_json(), encoding="utf-8")
        argv = [sys.executable, "-m", WORKER, folder]
        deadline_s = START_S + 2 * 60 * spec.minutes
        job = pool.submit(lab.launch, argv, world_size=spec.hosts, deadline_s=deadline_s)
        follower = _Follower(lab, spec, stage, show)
        try:
            follower.follow(job)
        except BaseException:
            lab.close()  # ends the job, for which leaving the pool waits
            raise
        try:
            job.result()
        except ClusterError as error:
            return _Crash(follower.contender, error)
        return Measured.from_json(stage.measured.read_text(encoding="utf-8"))


class _Follower:
    """Reads what rank 0 tells, opens the gates, and shows the rest."""

    def __init__(self, lab: Lab, spec: NetworkSpec, stage: Stage, show: Show) -> None:
        self.contender = ""
        self._lab = lab
        self._spec = spec
        self._stage = stage
        self._show = show
        self._part = ""
        self._part_began_s = time.monotonic()

    def follow(self, job: Future[JobResult]) -> None:
        """Until the job has ended."""
        place = 0
        while not job.done():
            lines, place = self._stage.told(place)
            for line in lines:
                if "gate" in line:
                    self._pass(line["gate"])
                else:
                    self._note(**line)
            time.sleep(POLL_S)

    def _pass(self, gate: str) -> None:
        rate = self._spec.link if gate == SHAPE else UNSHAPED
        for host in self._lab.hosts:
            self._lab.set_rate(host, rate)
        self._stage.open_gate(gate)

    def _note(self, part: str, contender: str, done: float | None = None, **figures: object) -> None:
        if part != self._part:
            self._part, self._part_began_s = part, time.monotonic()
        self.contender = contender or self.contender
        spent_s = time.monotonic() - self._part_began_s
        left_s = spent_s * (1 - done) / done if done else None
        text = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in figures.items())
        self._show(Glance(part, contender, done, left_s, text))

"""Running a curve: as many processes as hosts on this machine, with open links, or in a lab on shaped ones."""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from trainingkit.bench.network.stage import Stage
from trainingkit.bench.timetoloss.curve import Curve, CurveSpec
from trainingkit.cluster.launch import launch
from trainingkit.core.errors import ClusterError
from trainingkit.core.section import check
from trainingkit.netlab import Lab

WORKER = "trainingkit.bench.timetoloss.curve_worker"
GRACE_S = 5.0
POLL_S = 0.5
START_S = 300.0
SLOWEST_STEP_S = 120.0
Watch = Callable[[int, int, float], None]
"""Called with steps taken, steps to take, the last validation loss."""


def train_here(spec: CurveSpec, *, watch: Watch = lambda taken, of, loss: None) -> Curve:
    """Train on this machine's loopback, one thread a rank.

    Raises:
        ClusterError: a rank failed.
        KeyboardInterrupt: the launch was stopped by a signal.
    """
    with _staged(spec) as stage, _followed(stage, watch):
        result = launch(("-m", WORKER, str(stage.folder)), workers=spec.hosts, threads=1, grace_s=GRACE_S)
        if result.signal is not None:
            raise KeyboardInterrupt
        if result.crashed:
            rank, how = next(iter(result.crashed.items()))
            raise ClusterError(
                "A loss curve could not be run.",
                field=spec.name,
                found=f"rank {rank}: {how}",
                expected="every rank trains to the end",
                next_step="Look at the rank's output above; leave the contender out with --only.",
            )
        return _curve(stage)


def train_in_lab(lab: Lab, spec: CurveSpec, steps: int, *, watch: Watch = lambda taken, of, loss: None) -> Curve:
    """The first `steps` steps on the hosts of a lab, one thread a rank.

    Raises:
        ClusterError: a rank failed.
    """
    with _staged(spec) as stage, _followed(stage, watch):
        argv = [sys.executable, "-m", WORKER, str(stage.folder), str(steps)]
        lab.launch(argv, world_size=spec.hosts, deadline_s=START_S + SLOWEST_STEP_S * steps)
        return _curve(stage)


@contextlib.contextmanager
def _staged(spec: CurveSpec) -> Iterator[Stage]:
    with tempfile.TemporaryDirectory(prefix="trainingkit-curve-") as folder:
        stage = Stage(Path(folder))
        stage.spec.write_text(spec.model_dump_json(), encoding="utf-8")
        yield stage


def _curve(stage: Stage) -> Curve:
    return check(Curve, json.loads(stage.measured.read_text(encoding="utf-8")))


@contextlib.contextmanager
def _followed(stage: Stage, watch: Watch) -> Iterator[None]:
    """Pass on what rank 0 tells until the block ends."""
    over = threading.Event()

    def follow() -> None:
        place = 0
        while not over.wait(POLL_S):
            lines, place = stage.told(place)
            for line in lines:
                watch(line["step"], line["of"], line["loss"])

    thread = threading.Thread(target=follow, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()

"""The asking side: ranks on this host or in a lab, their progress, and the facts that they leave."""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from trainingkit.bench.advise.facts import Facts
from trainingkit.bench.advise.rank import Wish
from trainingkit.bench.advise.worker import LOG, RECIPE
from trainingkit.bench.network.run import Glance, Show
from trainingkit.bench.network.stage import Stage
from trainingkit.cluster.launch import launch
from trainingkit.cluster.threads import threads_per_worker
from trainingkit.core.errors import ClusterError
from trainingkit.core.files import write_atomic
from trainingkit.netlab import Lab, LabSpec
from trainingkit.trainer.recipe import Recipe, resolved_text

WORKER = "trainingkit.bench.advise.worker"
POLL_S = 0.1
LAB_DEADLINE_S = 900.0
CRASH = "Fatal Python error"
"""Where the interpreter's account of a crash begins."""


def on_this_host(recipe: Recipe, wish: Wish, *, workers: int, show: Show) -> Facts:
    """Measure with so many worker processes here.

    Raises:
        ClusterError: they failed.
    """

    def start(folder: Path) -> None:
        threads = threads_per_worker(workers, wanted=recipe.run.threads)
        result = launch(("-m", WORKER, str(folder)), workers=workers, threads=threads, grace_s=5.0)
        if result.signal is not None:
            raise KeyboardInterrupt
        if result.crashed:
            rank, end = next(iter(result.crashed.items()))
            raise _failed(f"rank {rank}: {end}", folder, rank)

    return _ask(recipe, wish, start, show)


def in_a_lab(recipe: Recipe, wish: Wish, spec: LabSpec, *, show: Show) -> Facts:
    """Measure in the hosts of a lab.

    Raises:
        ClusterError: no lab can be made here, or a rank failed.
    """

    def start(folder: Path) -> None:
        with Lab(spec) as lab:
            result = lab.launch([sys.executable, "-m", WORKER, str(folder)], deadline_s=LAB_DEADLINE_S, check=False)
        if result.first_failed is not None:
            end = result.first_failed
            raise _failed(f"rank {end.rank}: exit code {end.code}", folder, end.rank)
        result.check()

    return _ask(recipe, wish, start, show)


def _ask(recipe: Recipe, wish: Wish, start: Callable[[Path], None], show: Show) -> Facts:
    with tempfile.TemporaryDirectory(prefix="trainingkit-advise-") as name:
        stage = Stage(Path(name))
        stage.spec.write_text(json.dumps(wish.to_table()), encoding="utf-8")
        write_atomic(stage.folder / RECIPE, resolved_text(recipe))
        with _following(stage, show):
            start(stage.folder)
        if not stage.measured.exists():
            raise _failed("they left no figures", stage.folder, 0)
        return Facts.from_json(stage.measured.read_text(encoding="utf-8"))


@contextlib.contextmanager
def _following(stage: Stage, show: Show) -> Iterator[None]:
    """Show what rank 0 tells, on a thread: signals are the launch's."""
    ended = threading.Event()

    def follow() -> None:
        place = 0
        while not ended.wait(POLL_S):
            lines, place = stage.told(place)
            for line in lines:
                show(Glance(line["part"], line["contender"], line["done"], None))

    thread = threading.Thread(target=follow, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _failed(how: str, folder: Path, rank: int) -> ClusterError:
    """With the line of the rank's log that says why."""
    log = folder / f"{LOG}{rank}.txt"
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    return ClusterError(
        "The ranks that were to measure failed.",
        field="workers",
        found=f"{how}; {telling_line(text)}",
        expected="every rank to measure and leave",
        next_step="Mend that; trainingkit train --set run.steps=3 with this recipe shows more. Numbers need no ranks: "
        "--params 7e9 --step 2.5s --link 1gbit --ranks 8.",
    )


def telling_line(log: str) -> str:
    """Its last line; of a crash what was said before its list of stacks and modules."""
    said, crash, account = log.partition(CRASH)
    lines = [line.strip() for line in said.split("\n") if line.strip()]
    if crash:
        return ", ".join([*lines[-1:], crash + account.split("\n", 1)[0]])
    return lines[-1] if lines else "it wrote nothing"

"""Running a recipe from the command line: alone, on workers of our own launch, or inside somebody's launch."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from trainingkit.cli.relaunch import train_on_workers
from trainingkit.cluster.place import Place, find_place
from trainingkit.core import exitcodes, outcome
from trainingkit.core.errors import TrainingKitError
from trainingkit.core.files import write_atomic
from trainingkit.core.folderlock import LET_GO_S
from trainingkit.core.outcome import Verdict
from trainingkit.core.runfolder import RunFolder

if TYPE_CHECKING:
    from trainingkit.trainer.recipe import Recipe


def run_recipe(
    recipe: Recipe, run: RunFolder, *, resuming: bool = False, on_begin: Callable[[], None] = lambda: None
) -> int:
    """Train until the end, make the page, and say how it went. Returns the exit code.

    Args:
        run: where to; in somebody else's launch, a folder for a new run is agreed on between the ranks instead.
        resuming: continue in exactly this folder.
        on_begin: called once in the job, when the folder is ours and before anything is trained.
    """
    place = find_place()
    if place.launcher in ("torchrun", "srun"):
        if resuming and place.rank == 0:
            _write_recipe(recipe, run)
            on_begin()
        return _join(recipe, run if resuming else None, place)
    run.create()
    with run.locked(wait_s=LET_GO_S, shared=True):
        outcome.clear(run)
        _write_recipe(recipe, run)
        on_begin()
        verdict = train_on_workers(recipe, run, say=_say) if recipe.workers > 1 else _alone(recipe, run)
        with _deaf_to_stops():
            return conclude(run, verdict)


@contextlib.contextmanager
def _deaf_to_stops() -> Iterator[None]:
    """The end is near: a second request to stop must not change the exit code any more."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGTERM, signal.SIGUSR1)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


def conclude(run: RunFolder, verdict: Verdict) -> int:
    """Print how the run ended and what to do next, then make the page."""
    where = _short(run)
    if verdict.exit_code == exitcodes.DONE:
        _say(f"Run:  {where}")
    elif verdict.exit_code == exitcodes.PREEMPTED:
        _say(f"{verdict.message}\n  next step: {_way_on(run, where, 'train again')}")
    else:
        lines = [f"error: {verdict.message}", *_next_steps(run, verdict, where), f"  logs:      {where}/logs/"]
        sys.stderr.write("\n".join(lines) + "\n")
    _page(run)
    return verdict.exit_code


def _alone(recipe: Recipe, run: RunFolder) -> Verdict:
    from trainingkit.trainer.fit import Trainer

    try:
        Trainer(recipe, run=run).fit(joins=True)
    except Exception as error:
        outcomes = outcome.read(run) or {0: outcome.leave_failure(run, 0, 0, error)}
        return outcome.verdict(outcomes, 1, {})
    return outcome.verdict(outcome.read(run), 1, {})


def _join(recipe: Recipe, run: RunFolder | None, place: Place) -> int:
    """One rank of somebody else's launch. A failure ends with its own code, because there the launcher is the judge.

    Rank 0 ends with the code of what it says of all ranks of this launch. One that has left no outcome yet is the
    launcher's to judge: a shared file system may show its file late.
    """
    from trainingkit.trainer.fit import Trainer

    result = Trainer(recipe, run=run).fit()
    if place.rank != 0:
        return result.exit_code
    here = {rank: found for rank, found in outcome.read(result.run).items() if rank < place.world_size}
    return conclude(result.run, outcome.verdict(here, 0, {}))


def _write_recipe(recipe: Recipe, run: RunFolder) -> None:
    from trainingkit.trainer.recipe import resolved_text
    from trainingkit.trainer.seal import sealed

    write_atomic(run.recipe, sealed(resolved_text(recipe)))


def _page(run: RunFolder) -> None:
    """Make the page. That it cannot be written is said, but is no failure of the run."""
    from trainingkit.report import write

    try:
        _say(f"Page: {_relative(write(run))}")
    except (TrainingKitError, OSError) as error:
        sys.stderr.write(f"warning: {error}\n")


def _next_steps(run: RunFolder, verdict: Verdict, where: str) -> list[str]:
    """What to do after a failure. A message that says so itself is only completed by the command that continues."""
    if not verdict.advised:
        return [f"  next step: {_way_on(run, where, 'mend the cause and train again')}"]
    return [f"  continue:  trainingkit resume {shlex.quote(where)}"] if verdict.step > 0 and _has_snapshot(run) else []


def _way_on(run: RunFolder, where: str, otherwise: str) -> str:
    return f"trainingkit resume {shlex.quote(where)}" if _has_snapshot(run) else f"{otherwise}; nothing was saved yet"


def _has_snapshot(run: RunFolder) -> bool:
    """Whether there is a snapshot that is whole by names and sizes; its content is checked when it is read."""
    from trainingkit.recovery.findings import judge
    from trainingkit.recovery.layout import places

    return any(judge(place, contents=False).problem is None for place in places(run.snapshots))


def _short(run: RunFolder) -> str:
    return str(_relative(run.root))


def _relative(path: os.PathLike[str]) -> str:
    shown = os.path.relpath(path)
    return os.fspath(path) if shown.startswith("..") else shown


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()

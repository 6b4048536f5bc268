"""How a rank ended, and the one verdict over all of them.

A worker that fails still ends with exit code 0 and leaves an outcome file: the elastic agent takes any other
code for a crash and restarts everybody. The command line reads the files and picks the exit code and message.
"""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import time
import traceback
from dataclasses import dataclass

from trainingkit.core import exitcodes
from trainingkit.core.errors import PeerLost, TrainingKitError
from trainingkit.core.files import write_atomic
from trainingkit.core.logging import LOG
from trainingkit.core.runfolder import RunFolder


@dataclass(frozen=True)
class Outcome:
    """One rank's end.

    Args:
        status: "done", "preempted" or "failed".
        secondary: True when this rank only failed because another one did.
        advised: True when the message says itself what to do next.
        traceback: the full traceback, for the log; empty for errors that explain themselves.
    """

    rank: int
    status: str
    exit_code: int
    step: int
    message: str = ""
    traceback: str = ""
    secondary: bool = False
    advised: bool = False
    host: str = dataclasses.field(default_factory=socket.gethostname)
    pid: int = dataclasses.field(default_factory=os.getpid)
    time_s: float = dataclasses.field(default_factory=time.time)

    def write(self, run: RunFolder) -> None:
        """Leave the outcome in the run folder."""
        write_atomic(run.outcome(self.rank), json.dumps(dataclasses.asdict(self), indent=1))


@dataclass(frozen=True)
class Verdict:
    """The whole run's end: exit code, and the message of the rank that failed first.

    Args:
        step: steps that were done when it failed.
        advised: True when the message says itself what to do next.
    """

    exit_code: int
    status: str
    message: str
    rank: int | None = None
    step: int = 0
    advised: bool = False


def failed(rank: int, step: int, error: BaseException) -> Outcome:
    """The outcome of a rank that raised `error`; the traceback is kept where the error does not explain itself."""
    explained = isinstance(error, TrainingKitError)
    message = str(error) if explained else f"{type(error).__name__}: {error}"
    code = error.exit_code if isinstance(error, TrainingKitError) else exitcodes.FAILED
    secondary = isinstance(error, PeerLost)
    trace = "" if explained else "".join(traceback.format_exception(error))
    advised = isinstance(error, TrainingKitError) and error.next_step is not None
    return Outcome(rank, "failed", code, step, message, trace, secondary, advised)


def leave_failure(run: RunFolder, rank: int, step: int, error: BaseException) -> Outcome:
    """Leave the outcome of a rank that raised `error`, and return it.

    Where it cannot be written (a full disk), the log says so: `error` stays the one that a person hears of.
    """
    outcome = failed(rank, step, error)
    try:
        outcome.write(run)
    except OSError as unwritten:
        LOG.error("the outcome of rank %d cannot be written: %s", rank, unwritten)
    return outcome


def clear(run: RunFolder) -> None:
    """Remove the outcomes of an earlier attempt."""
    for path in run.outcomes_folder.glob("rank-*.json"):
        path.unlink()


def read(run: RunFolder) -> dict[int, Outcome]:
    """Outcomes by rank; ranks that left none are absent."""
    found: dict[int, Outcome] = {}
    for path in sorted(run.outcomes_folder.glob("rank-*.json")):
        try:
            outcome = Outcome(**json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError, OSError):
            continue
        found[outcome.rank] = outcome
    return found


def verdict(outcomes: dict[int, Outcome], world_size: int, crashed: dict[int, str]) -> Verdict:
    """Judge the run.

    Args:
        outcomes: as `read` gives them.
        world_size: ranks that were started.
        crashed: ranks that ended without being able to say so, with what is known ("killed by SIGKILL").
    """
    if crashed:
        rank, how = min(crashed.items())
        return Verdict(exitcodes.FAILED, "failed", f"Rank {rank} died: {how}.", rank)
    failures = [o for o in outcomes.values() if o.status == "failed"]
    if failures:
        first = min(failures, key=lambda o: (o.secondary, o.time_s))
        text = f"Rank {first.rank} on {first.host} failed at step {first.step}.\n{first.message}"
        if first.traceback:
            text += f"\n\n{first.traceback.rstrip()}"
        return Verdict(first.exit_code, "failed", text, first.rank, first.step, first.advised)
    missing = [rank for rank in range(world_size) if rank not in outcomes]
    if missing:
        return Verdict(exitcodes.FAILED, "failed", f"Rank {missing[0]} ended without an outcome.", missing[0])
    if any(o.status == "preempted" for o in outcomes.values()):
        step = max(o.step for o in outcomes.values())
        return Verdict(exitcodes.PREEMPTED, "preempted", f"Stopped on request after step {step}; the state is saved.")
    return Verdict(exitcodes.DONE, "done", "")

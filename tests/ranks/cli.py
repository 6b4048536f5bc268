"""The command line as a real process: its own session, a deadline, its output, and what it left behind.

run = start_cli(["train", "tiny.toml"], cwd=folder)
until(lambda: "step 3" in run.stdout(), deadline_s=60, what="step 3")
run.signal(signal.SIGTERM)
assert run.wait(deadline_s=30).code == 75
assert not orphans(run.marker)
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from ranks import faults as planned
from ranks.faults import Fault

MARKER = "RANKS_CLI_RUN"
STACKS_S = 3.0
_TESTS = str(Path(__file__).parents[1])


@dataclass(frozen=True)
class Finished:
    """A command that ended.

    Args:
        code: exit code; negative is a signal.
        seconds: from start to end.
        marker: pass it to `orphans`.
    """

    code: int
    stdout: str
    stderr: str
    seconds: float
    marker: str


@dataclass(eq=False)
class CliRun:
    """A command that is running."""

    process: subprocess.Popen[bytes]
    marker: str
    out: int
    err: int
    started_s: float = field(default_factory=time.monotonic)

    def stdout(self) -> str:
        """What it has written to stdout so far."""
        return _content(self.out)

    def stderr(self) -> str:
        """What it has written to stderr so far."""
        return _content(self.err)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the command itself, as `kill PID` does."""
        self.process.send_signal(number)

    def interrupt(self) -> None:
        """What Ctrl-C in a terminal does: SIGINT to the whole foreground process group."""
        os.killpg(self.process.pid, signal.SIGINT)

    def wait(self, deadline_s: float) -> Finished:
        """Wait for its end.

        Raises:
            TimeoutError: it did not end in time; all its processes have written their stacks to stderr (shown) and
                were killed.
        """
        try:
            code = self.process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            self._abort()
            text = f"stdout:\n{self.stdout()}\nstderr:\n{self.stderr()}"
            raise TimeoutError(f"{self.process.args} did not end within {deadline_s:g} s\n{text}") from None
        return Finished(code, self.stdout(), self.stderr(), time.monotonic() - self.started_s, self.marker)

    def kill(self) -> None:
        """SIGKILL to every process of the run."""
        for process in orphans(self.marker):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait()

    def _abort(self) -> None:
        processes = orphans(self.marker)
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)
                process.send_signal(signal.SIGABRT)
        psutil.wait_procs(processes, STACKS_S)
        self.kill()


def start_cli(
    arguments: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    faults: Iterable[Fault] = (),
    command: Sequence[str] = (sys.executable, "-m", "trainingkit"),
) -> CliRun:
    """Start `command` with `arguments` in a session of its own. The folder `tests` is importable there.

    Args:
        env: added to this process's environment.
        faults: passed on as `RANKS_FAULTS` (see `ranks.faults.from_environment`).
    """
    marker = uuid.uuid4().hex
    path = os.pathsep.join(filter(None, [str(cwd), _TESTS, os.environ.get("PYTHONPATH")]))
    environment = os.environ | {
        "PYTHONPATH": path,
        "PYTHONFAULTHANDLER": "1",
        "PYTHONUNBUFFERED": "1",
        "COLUMNS": "200",
    }
    environment |= {planned.VARIABLE: planned.to_text(faults), MARKER: marker} | dict(env or {})
    out, err = os.memfd_create("stdout"), os.memfd_create("stderr")
    process = subprocess.Popen(
        [*command, *arguments],
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=err,
        start_new_session=True,
    )
    run = CliRun(process, marker, out, err)
    for descriptor in (out, err):
        weakref.finalize(run, os.close, descriptor)
    return run


def run_cli(
    arguments: Sequence[str],
    *,
    cwd: Path,
    deadline_s: float = 120.0,
    env: Mapping[str, str] | None = None,
    faults: Iterable[Fault] = (),
) -> Finished:
    """`start_cli` and `wait` in one; nothing of the run survives an exception."""
    run = start_cli(arguments, cwd=cwd, env=env, faults=faults)
    try:
        return run.wait(deadline_s)
    except BaseException:
        run.kill()
        raise


def orphans(marker: str) -> list[psutil.Process]:
    """All living processes of the run with this marker; after its end they are orphans. This process is never one."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and process.environ().get(MARKER) == marker:
                found.append(process)
    return found


def _content(descriptor: int) -> str:
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode(errors="replace")

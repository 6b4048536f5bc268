"""Starting workers on this host through torchrun's own elastic launch API.

The agent gives each worker its environment, watches it, forwards signals and reaps it. What it does not do, and
this file does: OMP_NUM_THREADS (only its command line sets it), quiet logs, a second Ctrl-C that ends everything at
once (the agent would wait out its grace again), and no process left over.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
import uuid
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field
from types import FrameType

import psutil

from trainingkit.cluster.place import OWN_LAUNCH
from trainingkit.core.errors import ClusterError

REAP_S = 5.0
AGENT_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)


@dataclass(frozen=True)
class LaunchResult:
    """How the group of workers ended.

    Args:
        crashed: the rank that first ended with another code than 0, and how ("killed by SIGKILL", "exit code 3").
        signal: the signal that stopped the launch, or None.
    """

    crashed: dict[int, str] = field(default_factory=dict)
    signal: signal.Signals | None = None


def launch(
    arguments: Sequence[str],
    *,
    workers: int,
    threads: int,
    grace_s: float,
    on_interrupt: Callable[[], None] = lambda: None,
) -> LaunchResult:
    """Run `python ARGUMENTS` as `workers` ranks and wait for them.

    Args:
        arguments: what follows the interpreter, for example ("-m", "package.module", "argument").
        threads: OMP_NUM_THREADS of each, unless the caller's environment already sets it.
        grace_s: seconds between passing on a signal and SIGKILL.
        on_interrupt: called when the first Ctrl-C is passed on.

    Raises:
        ClusterError: the agent itself could not start.
        KeyboardInterrupt: a second Ctrl-C; the workers were killed.
    """
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    _quiet_agent()
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=workers,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        local_addr="127.0.0.1",
        max_restarts=0,
        monitor_interval=0.1,
        logs_specs=DefaultLogsSpecs(),
        shutdown_timeout=max(1, round(grace_s)),
        signals_to_handle=",".join(number.name for number in AGENT_SIGNALS),
    )
    with _environment(threads), _nobody_left(), _interrupts(on_interrupt):
        try:
            elastic_launch(config, sys.executable)(*arguments)
        except ChildFailedError as error:
            rank, failure = error.get_first_failure()
            return LaunchResult(crashed={rank: _how(failure.exitcode)})
        except SignalException as error:
            return LaunchResult(signal=error.sigval)
        except (RuntimeError, OSError, ValueError) as error:
            raise ClusterError(
                f"The workers could not be started: {error}",
                field="workers",
                found=str(workers),
                next_step="Try --workers 1, which needs no launcher.",
            ) from error
    return LaunchResult()


def _quiet_agent() -> None:
    """Its warnings repeat what we say ourselves. Each of its modules sets a level of its own."""
    for name in list(logging.root.manager.loggerDict):
        if name.startswith("torch.distributed.elastic"):
            logging.getLogger(name).setLevel(logging.CRITICAL)


def _how(exit_code: int) -> str:
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:
        name = f"signal {-exit_code}"
    return f"killed by {name}"


@contextlib.contextmanager
def _environment(threads: int) -> Iterator[None]:
    before = dict(os.environ)
    os.environ[OWN_LAUNCH] = str(os.getpid())
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextlib.contextmanager
def _nobody_left() -> Iterator[None]:
    """End every process below this one when the launch is over, however it ended."""
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    try:
        yield
    finally:
        psutil.wait_procs(_kill_children(but=before), timeout=REAP_S)


def _kill_children(*, but: Container[int] = ()) -> list[psutil.Process]:
    killed = [child for child in psutil.Process().children(recursive=True) if child.pid not in but]
    for child in killed:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    return killed


@contextlib.contextmanager
def _interrupts(on_interrupt: Callable[[], None]) -> Iterator[None]:
    """The first SIGINT goes to the agent, which passes it on to the workers; the second one kills them.

    The agent installs handlers and leaves them behind; all are put back.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    from torch.distributed.elastic.multiprocessing import SignalException

    def first(number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, _second_interrupt)
        on_interrupt()
        raise SignalException("interrupted", sigval=signal.Signals(number))

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, *AGENT_SIGNALS)}
    signal.signal(signal.SIGINT, first)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _second_interrupt(_number: int, _frame: FrameType | None) -> None:
    _kill_children()
    raise KeyboardInterrupt


def die_with_parent() -> None:
    """Ask the kernel to send SIGTERM when our launcher dies, so that a killed command line leaves no worker.

    Linux only (prctl PR_SET_PDEATHSIG); elsewhere it does nothing.
    """
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    parent = os.environ.get(OWN_LAUNCH)
    ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGTERM)
    if parent is not None and os.getppid() != int(parent):
        os.kill(os.getpid(), signal.SIGTERM)

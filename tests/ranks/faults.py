"""Faults by (rank, step): what goes wrong, on which rank, before which step.

Two forms: a list given to `pool.run(..., faults=[...])`, and the environment variable `RANKS_FAULTS` for real
command-line runs, whose user code (a model or a source of the test) calls `trigger(from_environment(), rank, step)`.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NoReturn

VARIABLE = "RANKS_FAULTS"


class InjectedFault(RuntimeError):
    """What a fault of kind `raise` raises."""


@dataclass(frozen=True)
class Fault:
    """One planned fault.

    Args:
        rank, step: where and when it strikes.
        kind: `raise` (InjectedFault), `kill` (SIGKILL to itself), `term`, `int`, `stop` (SIGSTOP), `slow`.
        seconds: how long `slow` takes.
    """

    rank: int
    step: int
    kind: str
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in _ACTIONS:
            raise ValueError(f"there is no fault kind {self.kind!r}; kinds: {', '.join(_ACTIONS)}")


def trigger(faults: Iterable[Fault], rank: int, step: int) -> None:
    """Carry out every fault that is planned for this rank and step."""
    for fault in faults:
        if (fault.rank, fault.step) == (rank, step):
            _ACTIONS[fault.kind](fault)


def to_text(faults: Iterable[Fault]) -> str:
    """`rank:step:kind:seconds` items joined by commas."""
    return ",".join(f"{fault.rank}:{fault.step}:{fault.kind}:{fault.seconds}" for fault in faults)


def from_text(text: str) -> list[Fault]:
    """The inverse of `to_text`; seconds may be left out."""
    faults = []
    for item in filter(None, text.split(",")):
        rank, step, kind, *seconds = item.split(":")
        faults.append(Fault(int(rank), int(step), kind, float(seconds[0]) if seconds else 0.0))
    return faults


def from_environment(environment: Mapping[str, str] = os.environ) -> list[Fault]:
    """The faults of `RANKS_FAULTS`; none when it is not set."""
    return from_text(environment.get(VARIABLE, ""))


def _raise(fault: Fault) -> NoReturn:
    raise InjectedFault(f"injected fault on rank {fault.rank} at step {fault.step}")


def _slow(fault: Fault) -> None:
    time.sleep(fault.seconds)


def _signal_self(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


_ACTIONS = {
    "raise": _raise,
    "kill": lambda fault: _signal_self(signal.SIGKILL),
    "term": lambda fault: _signal_self(signal.SIGTERM),
    "int": lambda fault: _signal_self(signal.SIGINT),
    "stop": lambda fault: _signal_self(signal.SIGSTOP),
    "slow": _slow,
}

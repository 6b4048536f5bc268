"""What the pool sends to a worker."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path

from ranks.faults import Fault

STACKS = signal.SIGUSR1
"""The signal that makes a worker write the stacks of all its threads."""


@dataclass(frozen=True)
class Job:
    """One rank's part of a run; `call` is (module, qualified name), `args` a pickled tuple."""

    call: tuple[str, str]
    args: bytes
    rank: int
    world_size: int
    folder: Path
    stacks: Path
    faults: tuple[Fault, ...]
    env: dict[str, str]
    path: list[str]
    timeout_s: float

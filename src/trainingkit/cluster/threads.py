"""How many CPU threads one worker may use: the host's cores shared out, so that workers do not fight."""

from __future__ import annotations

import os

import psutil


def usable_cores() -> int:
    """Cores this process may run on (affinity), not those that the machine has."""
    return len(os.sched_getaffinity(0))


def physical_cores() -> int:
    """Usable cores without the second thread of each core, where the system tells them apart."""
    usable = usable_cores()
    physical = psutil.cpu_count(logical=False) or usable
    return max(1, min(usable, physical))


def threads_per_worker(local_world_size: int, *, wanted: int = 0) -> int:
    """Threads for one of `local_world_size` workers on this host; `wanted` > 0 wins."""
    return wanted if wanted > 0 else max(1, physical_cores() // max(1, local_world_size))

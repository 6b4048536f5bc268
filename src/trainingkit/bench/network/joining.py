"""How a bench's process on a host becomes a rank: threads, allocator, arithmetic, and the other hosts' processes."""

from __future__ import annotations

import contextlib
import faulthandler
from collections.abc import Iterator

import torch
import torch.distributed as dist

from trainingkit.bench.network.rank import Rank
from trainingkit.bench.network.spec import NetworkSpec
from trainingkit.cluster.allocator import keep_freed_memory
from trainingkit.cluster.machine import has_fast_bf16
from trainingkit.cluster.meeting import join, leave
from trainingkit.cluster.place import find_place
from trainingkit.cluster.threads import threads_per_worker
from trainingkit.core.errors import ClusterError
from trainingkit.precision.compute import choose_compute
from trainingkit.precision.section import PrecisionSection


@contextlib.contextmanager
def joined(spec: NetworkSpec, *, command: str) -> Iterator[Rank]:
    """This process's rank among the hosts of a lab; at the end of the block all ranks wait for each other and part.

    Args:
        command: what a person types to start such processes.

    Raises:
        ClusterError: this process was not started as one of several.
    """
    faulthandler.enable()
    torch.set_num_threads(threads_per_worker(spec.hosts))
    keep_freed_memory()
    compute, _ = choose_compute(PrecisionSection(), torch.device("cpu"), cpu_has_bf16=has_fast_bf16())
    meeting = join(find_place(), join_s=spec.timeout_s, timeout_s=3 * spec.timeout_s)
    if meeting is None:
        raise ClusterError("The bench's worker needs a launcher.", field="RANK", next_step=command)
    yield Rank(spec, meeting, compute)
    dist.barrier(group=meeting.group)
    leave()

"""The rates that a job's work meets on a device: matrix rate of its precision as sustained, memory as streamed."""

from __future__ import annotations

from functools import lru_cache

from trainingkit.planner.cluster.gpu import Gpu
from trainingkit.planner.cost.gemm import MEMORY_SHARE, Chip
from trainingkit.planner.layout import Job

SCALAR_SHARE = 0.45
"""Share of the fp32 rate that products reach whose rows are not whole 16-byte words."""


def chip_of(job: Job, gpu: Gpu, *, attention: bool = False) -> Chip:
    """The chip as this job's products see it. Attention and the head stay in 16 bits when the rest is in 8."""
    precision = job.precision
    if attention and precision == "fp8":
        precision = "bf16"
    scalar = SCALAR_SHARE * gpu.rate("fp32")
    return _chip(gpu.rate(precision) * job.software.gemm_share, gpu.units, gpu.memory_gbps * 1e9 * MEMORY_SHARE, scalar)


@lru_cache(maxsize=1000)
def _chip(rate: float, units: int, memory: float, scalar: float) -> Chip:
    return Chip(rate, units, memory, scalar)

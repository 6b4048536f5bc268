"""What one host can do: matrix products, copies, memory, cores. Each rate is the best of a few short tries.

A product of two n x n matrices costs 2 n^3 operations; a copy reads and writes, and counts the bytes that it reads.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil
import torch

from trainingkit.cluster.machine import cpu_name
from trainingkit.cluster.threads import usable_cores

GEMM_SIDE = 768
COPY_BYTES = 64 << 20
TRY_S = 0.15


@dataclass(frozen=True)
class HostRates:
    """One rank's host.

    Args:
        threads: that the rates were measured with.
        gemm_fp32_gflops, gemm_bf16_gflops: 1e9 operations a second.
        copy_gb_per_s: 1e9 bytes read a second.
    """

    rank: int
    name: str
    cpu: str
    cores: int
    threads: int
    ram_bytes: int
    gemm_fp32_gflops: float
    gemm_bf16_gflops: float
    copy_gb_per_s: float


def measure_host(rank: int, *, side: int = GEMM_SIDE, copy_bytes: int = COPY_BYTES, try_s: float = TRY_S) -> HostRates:
    """Measure this process's host, with the threads that torch has now. Takes about 4 * `try_s`."""
    source, target = torch.ones(copy_bytes // 4), torch.zeros(copy_bytes // 4)
    copy_s = fastest(lambda: target.copy_(source), try_s)
    return HostRates(
        rank=rank,
        name=socket.gethostname(),
        cpu=cpu_name(),
        cores=usable_cores(),
        threads=torch.get_num_threads(),
        ram_bytes=psutil.virtual_memory().total,
        gemm_fp32_gflops=gemm_gflops(torch.float32, side, try_s),
        gemm_bf16_gflops=gemm_gflops(torch.bfloat16, side, try_s),
        copy_gb_per_s=copy_bytes / copy_s / 1e9,
    )


def gemm_gflops(dtype: torch.dtype, side: int, try_s: float) -> float:
    """1e9 operations a second of a square product."""
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(side, side, generator=generator).to(dtype) for _ in range(2))
    return 2 * side**3 / fastest(lambda: left @ right, try_s) / 1e9


def fastest(work: Callable[[], object], try_s: float) -> float:
    """Seconds of the quickest of as many runs as fit into `try_s` (two at least), after one that does not count."""
    work()
    best, begin, runs = float("inf"), time.perf_counter(), 0
    while runs < 2 or time.perf_counter() - begin < try_s:
        before = time.perf_counter()
        work()
        best, runs = min(best, time.perf_counter() - before), runs + 1
    return best

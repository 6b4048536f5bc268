"""Freed memory is used again: a loop that frees what it allocates stops causing page faults."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from trainingkit.cluster.allocator import keep_freed_memory

LOOP = """
import resource, sys
import torch
from trainingkit.cluster.allocator import keep_freed_memory

if sys.argv[1] == "kept":
    assert keep_freed_memory()
def step():
    return [torch.ones(1 << 19) for _ in range(20)]
for _ in range(3):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(mode: str) -> int:
    """Page faults of ten rounds of twenty blocks of 2 MB each, in a process of its own.

    Blocks come from the kernel at first: the threshold is given, so that what imports freed does not move it.
    """
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": str(128 << 10)}
    argv = [sys.executable, "-c", LOOP, mode]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_freed_memory_is_used_again() -> None:
    if not keep_freed_memory():
        pytest.skip("the C library is not glibc")
    kept, given_back = faults("kept"), faults("given back")
    assert given_back > 5_000 and given_back > 10 * kept

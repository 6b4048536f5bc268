"""The C library's allocator, told to keep freed memory for the next step instead of giving it back to the kernel.

A training step on the CPU frees and allocates the same gradients and activations again and again. By default glibc
returns large ones to the kernel, which zeroes new pages for the next step: tens of thousands of page faults a step.
"""

from __future__ import annotations

import ctypes
import platform

from trainingkit.core.logging import LOG

M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
LARGEST_MMAP_THRESHOLD = 32 << 20
"""glibc takes no more on 64-bit systems (malloc/malloc.c, DEFAULT_MMAP_THRESHOLD_MAX)."""
NEVER = -1
"""Of the trim threshold: no trimming at all (mallopt(3))."""


def keep_freed_memory() -> bool:
    """From now on, blocks of up to 32 MB come from the heap, and the heap is not trimmed (mallopt(3)).

    The process keeps what it once had. It concerns all of the process, a script that attaches the trainer included.

    Returns:
        Whether the C library took it; other libraries than glibc are left as they are.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    taken = bool(mallopt(M_MMAP_THRESHOLD, LARGEST_MMAP_THRESHOLD)) and bool(mallopt(M_TRIM_THRESHOLD, NEVER))
    if not taken:
        LOG.warning("the allocator did not take its settings; steps may spend time on page faults")
    return taken

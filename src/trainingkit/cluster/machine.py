"""What this host is, for the page and for choices: processor, cores, memory, bf16, versions."""

from __future__ import annotations

import platform
import socket
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from trainingkit.cluster.threads import usable_cores

VERSIONED = ("trainingkit", "torch", "transformers", "numpy")


def describe_machine() -> dict[str, Any]:
    """JSON-able facts about this host."""
    return {
        "host": socket.gethostname(),
        "cpu": cpu_name(),
        "cores": usable_cores(),
        "ram_bytes": psutil.virtual_memory().total,
        "system": f"{platform.system()} {platform.release()}",
        "bf16": has_fast_bf16(),
    }


def describe_versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide numbers."""
    found = {"python": platform.python_version()}
    for name in VERSIONED:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def cpu_name() -> str:
    """The processor's own name for itself."""
    for line in _cpuinfo():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def has_fast_bf16() -> bool:
    """True when the processor multiplies bf16 natively (AVX-512 BF16, AMX or Arm's BF16)."""
    flags: set[str] = set()
    for line in _cpuinfo():
        if line.startswith(("flags", "Features")):
            flags = set(line.partition(":")[2].split())
            break
    return bool(flags & {"avx512_bf16", "amx_bf16", "bf16"})


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []

"""Will that many workers fit in this host's memory? Asked before anything is started."""

from __future__ import annotations

import psutil

from trainingkit.core.errors import ConfigError
from trainingkit.core.units import format_bytes

PROCESS_BYTES = 450_000_000
"""Resident memory of one worker before its model: interpreter, PyTorch, transformers (measured: 380 to 440 MB)."""
BYTES_PER_PARAMETER = 4 * 6
"""fp32 parameters, gradients, DDP's buckets, two AdamW moments, and the staged copy of a snapshot at its smallest."""


def worker_bytes(parameters: int | None) -> int:
    """A lower bound for the memory of one worker, activations not counted."""
    return PROCESS_BYTES + BYTES_PER_PARAMETER * (parameters or 0)


def check_workers_fit(workers: int, parameters: int | None, *, available_bytes: int | None = None) -> None:
    """Refuse a number of workers whose lower bound does not fit.

    Raises:
        ConfigError: they do not fit; says how many would.
    """
    available = psutil.virtual_memory().available if available_bytes is None else available_bytes
    each = worker_bytes(parameters)
    if workers * each <= available:
        return
    most = available // each
    raise ConfigError(
        "So many workers do not fit in this machine's memory.",
        field="workers",
        found=f"{workers} workers x at least {format_bytes(each)} = {format_bytes(workers * each)}",
        expected=f"at most {format_bytes(available)}, which is free now: {most} workers",
        next_step=f"Use --workers {most}." if most else "Choose a smaller model, or a machine with more memory.",
    )

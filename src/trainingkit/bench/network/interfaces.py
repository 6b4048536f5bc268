"""Bytes that left this host's network interfaces, loopback aside: the kernel's own counters, headers and all."""

from __future__ import annotations

from pathlib import Path

COUNTERS = Path("/proc/self/net/dev")
SENT_BYTES_COLUMN = 8


def sent_bytes(text: str | None = None) -> int | None:
    """The sum over interfaces, or None where there is none but loopback.

    Args:
        text: content of /proc/net/dev; by default of the network namespace of this process.
    """
    lines = (COUNTERS.read_text(encoding="utf-8") if text is None else text).splitlines()
    found = [line.partition(":") for line in lines if ":" in line]
    sent = [int(rest.split()[SENT_BYTES_COLUMN]) for name, _, rest in found if name.strip() != "lo"]
    return sum(sent) if sent else None

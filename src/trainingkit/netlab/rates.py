"""Link rates as people write them: "100mbit", "25Mbit/s", "1 gbit", "unshaped"; and back.

Decimal units, bits per second on the wire: 1 Mbit/s = 1e6 bit/s. `None` stands for a link that is not shaped.
"""

from __future__ import annotations

import re

from trainingkit.core.errors import ConfigError

UNSHAPED = "unshaped"
EXPECTED = "a rate, for example '100mbit', '2.5 gbit/s' or 'unshaped'"
LOWEST_BPS = 10_000
"""Below this a single frame takes longer than a second, and TCP does not start."""

_UNITS = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
_RATE = re.compile(r"([0-9]*\.?[0-9]+)\s*([a-z]+)(?:/s)?")


def parse_rate(text: str, *, field: str) -> int | None:
    """Bits per second, or None for "unshaped".

    Raises:
        ConfigError: no rate, an unknown unit, or less than `LOWEST_BPS`.
    """
    wanted = text.strip().lower()
    if wanted == UNSHAPED:
        return None
    match = _RATE.fullmatch(wanted)
    if match is None or match[2] not in _UNITS:
        raise ConfigError(
            "This is not a link rate we can read.",
            field=field,
            found=repr(text),
            expected=EXPECTED,
            next_step="Write bits with their unit: kbit, mbit or gbit. (`mbps` means bits to some tools, bytes to tc.)",
        )
    rate_bps = round(float(match[1]) * _UNITS[match[2]])
    if rate_bps < LOWEST_BPS:
        raise ConfigError(
            "This link is too slow for TCP.",
            field=field,
            found=repr(text),
            expected="10kbit or more",
            next_step="Raise it.",
        )
    return rate_bps


def format_rate(rate_bps: float | None) -> str:
    """25_000_000 -> '25 Mbit/s'; None -> 'unshaped'."""
    if rate_bps is None:
        return UNSHAPED
    for unit, size in (("Gbit/s", 10**9), ("Mbit/s", 10**6), ("kbit/s", 10**3)):
        if rate_bps >= size:
            return f"{rate_bps / size:.4g} {unit}"
    return f"{rate_bps:.0f} bit/s"

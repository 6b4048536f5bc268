"""Numbers for people: bytes, seconds and rates with their units; and back."""

from __future__ import annotations

import re

from trainingkit.core.errors import ConfigError

_BYTES = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_BYTES |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_SECONDS = {"": 1.0, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_NUMBER = re.compile(r"\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z]*)\s*")


def format_bytes(n_bytes: float) -> str:
    """Decimal units, three digits: 65_100_000 -> '65.1 MB'."""
    scaled = _scaled(n_bytes, (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)))
    return scaled or f"{n_bytes:.0f} B"


def format_seconds(seconds: float) -> str:
    """'350 us', '2.1 ms', '7.5 s', '3 min 20 s', '2 h 05 min'."""
    if _three_digits(seconds) < 60:
        return _scaled(seconds, (("s", 1.0), ("ms", 1e-3))) or f"{seconds * 1e6:.0f} us"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def format_count(count: float) -> str:
    """'5 M', '12.3 k', '950'."""
    scaled = _scaled(count, (("T", 10**12), ("B", 10**9), ("M", 10**6), ("k", 10**3)))
    return scaled or f"{count:.3g}"


def _scaled(value: float, units: tuple[tuple[str, float], ...]) -> str | None:
    """`value` in the first unit in which it rounds to 1 or more: 999_999 is '1 M', not '1e+03 k'."""
    for unit, size in units:
        shown = _three_digits(value / size)
        if abs(shown) >= 1:
            return f"{shown:.15g} {unit}"
    return None


def _three_digits(value: float) -> float:
    return float(f"{value:.3g}")


def parse_bytes(text: str, *, field: str) -> int:
    """'2 MB', '512KiB', '100' -> bytes. Raises ConfigError."""
    units = {unit: float(size) for unit, size in _BYTES.items()}
    return round(_parse(text, units, field, "bytes, for example '2 MB'", upper=True))


def parse_seconds(text: str, *, field: str) -> float:
    """'20ms', '1.5 s', '5min' -> seconds. Raises ConfigError."""
    return _parse(text, _SECONDS, field, "a time, for example '20ms' or '5min'", upper=False)


def _parse(text: str, units: dict[str, float], field: str, expected: str, *, upper: bool) -> float:
    match = _NUMBER.fullmatch(text)
    unit = match[2].upper() if match and upper else match[2] if match else None
    if match is None or unit not in units:
        raise ConfigError(
            "This is not a quantity we can read.",
            field=field,
            found=repr(text),
            expected=expected,
            next_step=f"Use a number and one of these units: {', '.join(unit for unit in units if unit)}.",
        )
    return float(match[1]) * units[unit]

"""A resolved recipe says in its first line what follows it, so that a changed digit cannot pass for a setting."""

from __future__ import annotations

import re
import zlib
from pathlib import Path

from trainingkit.core.errors import ConfigError

_SEAL = re.compile(rb"# crc32 ([0-9a-f]{8}) of what follows[^\n]*\n")
_ADVICE = "change settings with `trainingkit resume RUN --set section.key=value`"


def sealed(text: str) -> str:
    """The text below a comment with its CRC-32."""
    return f"# crc32 {zlib.crc32(text.encode()):08x} of what follows; {_ADVICE}\n{text}"


def check_seal(path: Path) -> None:
    """Raise ConfigError when what follows the seal is not what was sealed. A file without one is taken as it is."""
    raw = path.read_bytes()
    match = _SEAL.match(raw)
    if match is None:
        return
    found = f"{zlib.crc32(raw[match.end() :]):08x}"
    if found != match[1].decode():
        raise ConfigError(
            "The recipe of this run is not as it was written.",
            field=str(path),
            found=f"CRC-32 {found}",
            expected=match[1].decode(),
            next_step=f"Put the file back from a copy. To {_ADVICE}; if you changed it by hand and mean it, delete its "
            "first line.",
        )

"""Results that are kept between commands: one JSON file each, whole or not there, below the user's cache folder.

The name of a file is a digest of all its settings, so what is there is never computed again.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TypeVar

from trainingkit.core.errors import ConfigError
from trainingkit.core.files import write_atomic
from trainingkit.core.section import Section, check

SectionT = TypeVar("SectionT", bound=Section)


def cache_folder(bench: str) -> Path:
    """$XDG_CACHE_HOME/trainingkit/BENCH, else below ~/.cache."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "trainingkit" / bench


def require_writable(folder: Path) -> None:
    """Make a folder of the cache, and prove that it can be written, before hours of work are to be kept there.

    Raises:
        ConfigError: it cannot be written.
    """
    probe = folder / f".writable.{os.getpid()}"
    keep(probe, "")
    probe.unlink()


def read_kept(path: Path, kind: type[SectionT]) -> SectionT | None:
    """What is kept, or None when there is nothing that can be read; a damaged file is as good as none."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        return check(kind, values) if isinstance(values, dict) else None
    except (OSError, ValueError, ConfigError):
        return None


def keep(path: Path, text: str) -> None:
    """Write a file of the cache, whole or not at all.

    Raises:
        ConfigError: the cache cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, text)
    except OSError as error:
        raise ConfigError(
            f"What was measured cannot be kept: {error.strerror}.",
            field="--cache",
            found=str(path.parent),
            expected="a folder that can be written",
            next_step="Choose another with --cache DIR.",
        ) from error

"""Options of `train` and `resume` that are short for settings of the recipe."""

from __future__ import annotations

import re

from trainingkit.core.errors import ConfigError
from trainingkit.core.units import parse_seconds

_RANGE = re.compile(r"(\d+):(\d+)")


def workers_overrides(workers: str | None) -> list[str]:
    """Settings for `--workers`: a number, or LEAST:MOST, which allows as many restarts as workers may be lost.

    Raises:
        ConfigError: neither a number nor such a range.
    """
    if workers is None:
        return []
    if workers.isdecimal():
        return [f"workers={workers}"]
    match = _RANGE.fullmatch(workers)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise ConfigError(
            "This is no number of workers.",
            field="--workers",
            found=repr(workers),
            expected="a whole number, or the least and the most, such as 2:4",
            next_step="For example: --workers 4",
        )
    least, most = int(match[1]), int(match[2])
    return [f"workers={most}", f"run.min_workers={least}", f"run.restarts={most - least}"]


def grace_override(grace: str | None) -> list[str]:
    """The setting for `--grace`. Raises ConfigError for what is no time."""
    return [] if grace is None else [f"run.grace_s={parse_seconds(grace, field='--grace')}"]

"""Whether a manifest that is whole is the one that belongs there: of that step, with a state of each of its ranks."""

from __future__ import annotations

import re
from pathlib import Path

from trainingkit.recovery import layout
from trainingkit.recovery.manifest import MANIFEST, Manifest

_RANK_FILE = re.compile(r"rank-(\d+)\.json")


def misfit(path: Path, listed: Manifest) -> str | None:
    """What is wrong, in words, or None.

    Args:
        path: the snapshot's folder, whose name tells its step.
    """
    step = layout.step_of(path)
    if step is not None and listed.step != step:
        return f"{MANIFEST} is of another snapshot: found step {listed.step}, expected {step}"
    ranks = sorted(int(match[1]) for name in listed.files if (match := _RANK_FILE.fullmatch(name)))
    if ranks == list(range(listed.world_size)):
        return None
    found = ", ".join(map(str, ranks)) or "none"
    return f"{MANIFEST} says {listed.world_size} ranks: found the state of ranks {found}, expected one of each"

"""What a run that was stopped at once by Ctrl-C says at its end."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable

from trainingkit.cluster.place import find_place
from trainingkit.core.exitcodes import INTERRUPTED
from trainingkit.core.runfolder import RunFolder


def or_interrupted(run: RunFolder, work: Callable[[], int], *, otherwise: str) -> int:
    """The exit code of `work`; where Ctrl-C ends it without saving, that is said, with the way on.

    Args:
        run: where the work goes on. In somebody else's launch the ranks may have agreed on another, so nothing is said.
        otherwise: what to do where nothing was saved yet.

    Raises:
        KeyboardInterrupt: in somebody else's launch.
    """
    try:
        return work()
    except KeyboardInterrupt:
        if not find_place().alone:
            raise
        sys.stderr.write(f"Stopped at once by Ctrl-C, without saving.\n  next step: {_way_on(run, otherwise)}\n")
        return INTERRUPTED


def _way_on(run: RunFolder, otherwise: str) -> str:
    from trainingkit.recovery.findings import judge
    from trainingkit.recovery.layout import places

    steps = [place.step for place in places(run.snapshots) if judge(place, contents=False).problem is None]
    if not steps:
        return f"{otherwise}; nothing was saved yet"
    shown = os.path.relpath(run.root)
    where = str(run.root) if shown.startswith("..") else shown
    return f"trainingkit resume {shlex.quote(where)}    (the newest snapshot is of step {max(steps)})"

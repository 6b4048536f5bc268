"""One job at a time in a folder, by `flock` on a file in it. The kernel lets go when the last holder ends, however.

A job may have more than one holder: its launcher, and the process of its rank 0, which may live on for a moment when
the launcher was killed. The launcher begins the job (`shared`), its worker joins it (`joins`); nobody else can do
either meanwhile. Without a launcher of ours there is one holder.
"""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from trainingkit.core.errors import RunFolderError
from trainingkit.core.logging import LOG

LET_GO_S = 6.0
"""How long a killed job's processes may take to end: torch's loader workers look for their parent every 5 s."""
POLL_S = 0.05


@contextlib.contextmanager
def hold(path: Path, *, wait_s: float = 0.0, shared: bool = False, joins: bool = False) -> Iterator[None]:
    """Hold the lock file at `path` for a job.

    A file system without locks is said in the log, and nothing is held there.

    Args:
        wait_s: how long to wait for another job to end.
        shared: let processes of this job join.
        joins: be one of those; the job has begun.

    Raises:
        RunFolderError: another job holds it, or the file cannot be opened.
    """
    with _opened(path) as handle:
        _take(handle, path, fcntl.LOCK_SH if joins else fcntl.LOCK_EX, wait_s)
        if shared:
            _take(handle, path, fcntl.LOCK_SH, 0.0)
        yield


def _opened(path: Path) -> IO[str]:
    try:
        return open(path, "w", encoding="utf-8")
    except OSError as error:
        raise RunFolderError(
            f"The run folder cannot be locked: {error.strerror}.",
            field="run.folder",
            found=str(path),
            expected="a file that can be created or written",
            next_step="Set run.folder to another path, or mend its permissions.",
        ) from error


def _take(handle: IO[str], path: Path, how: int, wait_s: float) -> None:
    end_s = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(handle, how | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if time.monotonic() >= end_s:
                raise _held(path) from error
        except OSError as error:
            LOG.warning("%s cannot be locked here (%s): a second job in it would not be seen", path.parent, error)
            return
        time.sleep(POLL_S)


def _held(path: Path) -> RunFolderError:
    return RunFolderError(
        "Another job is at work in this run folder.",
        field="run.folder",
        found=str(path.parent),
        expected="a folder that no running job uses",
        next_step="Wait until it has ended, or stop it; then resume.",
    )

"""The run folder: what is in it, and where. Nobody else spells these paths.

recipe.toml             resolved recipe                  written by the CLI, read by resume / eval / export / report
metrics/rank-*.jsonl    one record a line                written by each rank, read by the page
decisions.jsonl         automatic choices, with reasons  written by rank 0
logs/rank-*.log         log lines and native stderr      written by each rank
outcomes/rank-*.json    how each rank ended              written by each rank, read by the CLI for its exit code
snapshots/step-*/       checkpoints, manifest last       written by recovery
.lock                   held by the job at work in it    taken by rank 0 and our own launcher
stop                    a request to save and stop       made by a person, removed by rank 0 when it is met
journal/rank-*/         steps since a snapshot           written by each rank, read by resume and recover
skips.json              batches to leave out             written by recover, read by the loop
report.html             the page                         written by report
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from trainingkit.core.errors import RunFolderError
from trainingkit.core.folderlock import hold

_FREE_SPACE = "Free space there and resume, or begin with run.folder on another disk."
_REMEDIES = {errno.ENOSPC: _FREE_SPACE, errno.EDQUOT: _FREE_SPACE}


@dataclass(frozen=True)
class RunFolder:
    """Paths inside one run folder. Creating the object touches nothing."""

    root: Path

    @property
    def recipe(self) -> Path:
        """The resolved recipe."""
        return self.root / "recipe.toml"

    @property
    def decisions(self) -> Path:
        """Automatic choices with their reasons."""
        return self.root / "decisions.jsonl"

    @property
    def snapshots(self) -> Path:
        """Folder of the snapshots."""
        return self.root / "snapshots"

    @property
    def journal(self) -> Path:
        """Folder of the journal."""
        return self.root / "journal"

    @property
    def skips(self) -> Path:
        """Batches that are left out since the run was set back."""
        return self.root / "skips.json"

    @property
    def stop(self) -> Path:
        """The file that asks for a stop."""
        return self.root / "stop"

    @property
    def report(self) -> Path:
        """The page."""
        return self.root / "report.html"

    @property
    def metrics_folder(self) -> Path:
        """Folder of the records."""
        return self.root / "metrics"

    @property
    def outcomes_folder(self) -> Path:
        """Folder of the outcomes."""
        return self.root / "outcomes"

    @property
    def logs_folder(self) -> Path:
        """Folder of the logs."""
        return self.root / "logs"

    def metrics(self, rank: int) -> Path:
        """Records of one rank."""
        return self.metrics_folder / f"rank-{rank}.jsonl"

    def log(self, rank: int) -> Path:
        """Log of one rank."""
        return self.logs_folder / f"rank-{rank}.log"

    def outcome(self, rank: int) -> Path:
        """Outcome of one rank."""
        return self.outcomes_folder / f"rank-{rank}.json"

    def create(self) -> None:
        """Make the folder and its sub-folders, and prove that it can be written.

        Raises:
            RunFolderError: it cannot be made or written.
        """
        with self.written():
            for folder in (self.metrics_folder, self.outcomes_folder, self.logs_folder, self.snapshots):
                folder.mkdir(parents=True, exist_ok=True)
            probe = self.root / f".writable.{os.getpid()}"
            probe.write_bytes(b"")
            probe.unlink()

    @contextlib.contextmanager
    def written(self) -> Iterator[None]:
        """Context that turns an OSError of what is written into the folder into one that a person can act on.

        Raises:
            RunFolderError: something could not be written.
        """
        try:
            yield
        except OSError as error:
            raise RunFolderError(
                f"The run folder cannot be written: {error.strerror}.",
                field="run.folder",
                found=str(self.root),
                expected="a folder that can be created or written",
                next_step=_REMEDIES.get(error.errno or 0, "Set run.folder to another path, or mend its permissions."),
            ) from error

    def locked(self, *, wait_s: float = 0.0, shared: bool = False, joins: bool = False) -> AbstractContextManager[None]:
        """Hold the folder for one job; the kernel lets go of it when the processes end, however they end.

        Args:
            wait_s: how long to wait for another job to end.
            shared: let rank 0 of this job join.
            joins: be that rank 0, of a job that has begun.

        Raises:
            RunFolderError: another job is at work in it.
        """
        return hold(self.root / ".lock", wait_s=wait_s, shared=shared, joins=joins)

    @staticmethod
    def existing(path: str | Path) -> RunFolder:
        """The run folder at `path`, which must hold a run.

        Raises:
            RunFolderError: there is nothing, or no resolved recipe in it.
        """
        run = RunFolder(Path(path).resolve())
        if not run.recipe.is_file():
            raise RunFolderError(
                "This is not a run folder: it holds no recipe.toml.",
                field="RUN",
                found=str(path),
                expected="a folder that `trainingkit train` made",
                next_step="List runs with: ls runs",
            )
        return run


def new_run_path(parent: Path, name: str) -> Path:
    """An unused folder name below `parent`: name, date, time, and a counter when two start in one second."""
    stem = f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    path = parent / stem
    count = 2
    while path.exists():
        path = parent / f"{stem}-{count}"
        count += 1
    return path

"""How the workers and the one who started them keep in step: two files in a folder that both see.

Rank 0 appends lines to `progress.jsonl`. A line with `gate` asks for something to be done outside (shape the links,
lift the shaping); the other side does it and leaves a file of the gate's name. Both survive a worker that dies.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainingkit.core.errors import ClusterError

POLL_S = 0.02
SHAPE, UNSHAPE = "shape", "unshape"


@dataclass(frozen=True)
class Stage:
    """One run's folder."""

    folder: Path

    @property
    def spec(self) -> Path:
        """What to run."""
        return self.folder / "spec.json"

    @property
    def progress(self) -> Path:
        """Lines of rank 0."""
        return self.folder / "progress.jsonl"

    @property
    def measured(self) -> Path:
        """What rank 0 leaves at the end."""
        return self.folder / "measured.json"

    def tell(self, **line: Any) -> None:
        """Append a line of progress."""
        with open(self.progress, "a", encoding="utf-8") as handle:
            handle.write(json.dumps(line) + "\n")

    def told(self, start: int) -> tuple[list[dict[str, Any]], int]:
        """Whole lines from byte `start` on, and where the next ones begin."""
        if not self.progress.exists():
            return [], start
        data = self.progress.read_bytes()[start:]
        whole = data[: data.rfind(b"\n") + 1]
        return [json.loads(line) for line in whole.splitlines()], start + len(whole)

    def open_gate(self, gate: str) -> None:
        """Say that what `gate` asked for is done."""
        (self.folder / gate).touch()

    def pass_gate(self, gate: str, *, timeout_s: float) -> None:
        """Ask for `gate` and wait until it is open.

        Raises:
            ClusterError: nobody opened it in time.
        """
        self.tell(gate=gate)
        end = time.monotonic() + timeout_s
        while not (self.folder / gate).exists():
            if time.monotonic() > end:
                raise ClusterError(
                    f"The links were not changed ({gate}) within {timeout_s:.0f} s.",
                    field="netlab",
                    next_step="Look whether the command that started the bench still runs; start it again.",
                )
            time.sleep(POLL_S)

"""A model for command-line runs that writes down which samples each of its training forwards was given."""

from __future__ import annotations

import json
import os
import zlib
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cli_models import Faulty
from torch import nn

from ranks.polling import until
from trainingkit.core.records import StartRecord, read_records
from trainingkit.core.runfolder import RunFolder
from trainingkit.recovery.layout import published


class Witness(Faulty):
    """`Faulty` that appends a line a step to a file of its own process.

    Args:
        saved: after so many steps, wait until the snapshot of that step is there.
    """

    def __init__(self, pause_s: float, folder: str, saved: int) -> None:
        super().__init__(pause_s, 1)
        self.awaited = (saved, published(RunFolder(Path(folder) / "run").snapshots, saved))
        self.path = Path(folder) / f"witness-{os.getpid()}.jsonl"

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> dict[str, Any]:
        if self.training:
            with open(self.path, "a", encoding="utf-8") as handle:
                handle.write(json.dumps([name_of(row) for row in input_ids.numpy()]) + "\n")
            if self.step == self.awaited[0] > 0:
                until(self.awaited[1].exists, deadline_s=60.0, what="a snapshot")
        return super().forward(input_ids, labels)


def witness(folder: str, pause_s: float = 0.0, saved: int = 0) -> nn.Module:
    """For `[model] kind = "python"`."""
    return Witness(pause_s, folder, saved)


def name_of(row: np.ndarray) -> int:
    """A number that stands for one sample's tokens: [seq_len] int64."""
    return zlib.crc32(np.ascontiguousarray(row, dtype="<i8").tobytes())


def used(folder: Path, run: RunFolder) -> tuple[dict[int, list[list[int]]], list[StartRecord]]:
    """Samples by step and rank, in the state that counts (of a step that was run twice, the later attempt); rank 0's
    start records, one an attempt.
    """
    found: dict[int, dict[int, dict[int, list[int]]]] = defaultdict(lambda: defaultdict(dict))
    begun: list[StartRecord] = []
    for path in sorted(run.metrics_folder.glob("rank-*.jsonl")):
        records, _ = read_records(path)
        for record in records:
            if isinstance(record, StartRecord):
                begun += [record] if record.rank == 0 else []
                lines = (folder / f"witness-{record.pid}.jsonl").read_text(encoding="utf-8").splitlines()
                for count, line in enumerate(lines):
                    found[record.start_step + count + 1][record.attempt][record.rank] = json.loads(line)
    latest = {step: attempts[max(attempts)] for step, attempts in found.items()}
    return {step: [ranks[rank] for rank in sorted(ranks)] for step, ranks in sorted(latest.items())}, begun

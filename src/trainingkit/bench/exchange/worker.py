"""One process of the exchange bench, `python -m trainingkit.bench.exchange.worker FOLDER`; it leaves JSON there."""

from __future__ import annotations

import faulthandler
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from trainingkit.bench.exchange.many import real_footprint, simulated_footprint
from trainingkit.bench.exchange.spec import ISLANDS, SIMULATED, Task
from trainingkit.bench.exchange.turns import take_turns
from trainingkit.cluster.ending import run_and_exit
from trainingkit.cluster.meeting import join, leave
from trainingkit.cluster.place import find_place
from trainingkit.core.errors import ClusterError
from trainingkit.core.files import write_atomic
from trainingkit.core.section import check

TASK = "task.json"


def measured_path(folder: Path, rank: int) -> Path:
    """What a rank leaves."""
    return folder / f"measured-{rank}.json"


def main(folder: Path) -> None:
    """Do the folder's task."""
    faulthandler.enable()
    torch.set_num_threads(1)
    task = check(Task, json.loads((folder / TASK).read_text(encoding="utf-8")))
    rank = int(os.environ.get("RANK", "0"))
    found = asdict(simulated_footprint(task)) if task.how == SIMULATED else _together(task)
    write_atomic(measured_path(folder, rank), json.dumps(found))


def _together(task: Task) -> dict[str, Any]:
    meeting = join(find_place(), join_s=task.timeout_s, timeout_s=task.timeout_s)
    if meeting is None:
        raise ClusterError("The bench's worker needs a launcher.", field="RANK", next_step="trainingkit bench exchange")
    try:
        if task.how == ISLANDS:
            return take_turns(task, meeting.group)
        found = real_footprint(task, meeting.group)
        dist.barrier(group=meeting.group)
        return asdict(found)
    finally:
        leave()


if __name__ == "__main__":
    run_and_exit(lambda: main(Path(sys.argv[1])))

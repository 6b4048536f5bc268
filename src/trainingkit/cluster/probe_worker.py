"""One worker of the probe's own launch: `python -m trainingkit.cluster.probe_worker FILE SECONDS`.

Rank 0 leaves the inventory in FILE.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from trainingkit.cluster.ending import run_and_exit
from trainingkit.cluster.launch import die_with_parent
from trainingkit.cluster.meeting import leave
from trainingkit.cluster.place import find_place
from trainingkit.cluster.probe import probe
from trainingkit.core.files import write_atomic


def main(file: str, budget_s: str) -> None:
    """Probe as one rank."""
    die_with_parent()
    place = find_place()
    inventory = probe(place, budget_s=float(budget_s), join_s=60.0, timeout_s=120.0)
    if place.rank == 0:
        write_atomic(Path(file), json.dumps(inventory.table()))
    leave()


if __name__ == "__main__":
    run_and_exit(lambda: main(*sys.argv[1:]))

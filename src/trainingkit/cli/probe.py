"""`trainingkit probe`."""

from __future__ import annotations

import json as json_module
import sys
from pathlib import Path
from typing import Any


def probe(
    *, workers: int | None = None, output: Path = Path("cluster.toml"), json: Path | None = None, seconds: float = 60.0
) -> int:
    """Measure what these machines are: links between them, matrix products, copies, memory. Writes cluster.toml.

    Alone it measures this host. Under torchrun or srun the same command joins that job, and rank 0 prints and writes.
    Each pair of ranks is measured alone, both ways. A host or link that is 1.5 times worse than the median is named.

    Examples:
      trainingkit probe
      trainingkit probe --workers 3 --output cluster.toml
      torchrun --nnodes 4 --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint HOST:29400 -m trainingkit probe
      trainingkit netlab --hosts 4 --links 100mbit,100mbit,20mbit,100mbit -- python -m trainingkit probe

    Parameters
    ----------
    workers
        Start so many workers on this host.
    output
        Where rank 0 writes the inventory, as TOML.
    json
        Where to write it as JSON, too.
    seconds
        No further pair is begun after so many seconds.
    """
    from trainingkit.cluster.place import find_place

    place = find_place()
    if workers is not None and place.alone:
        return _show(_launch(workers, seconds), output, json)
    from trainingkit.cluster.meeting import leave
    from trainingkit.cluster.probe import probe as measure

    table = measure(place, budget_s=seconds, join_s=60.0, timeout_s=120.0).table()
    leave()
    return _show(table, output, json) if place.rank == 0 else 0


def _launch(workers: int, seconds: float) -> dict[str, Any]:
    import tempfile

    from trainingkit.cluster.launch import launch
    from trainingkit.cluster.threads import threads_per_worker
    from trainingkit.core.errors import ClusterError

    with tempfile.TemporaryDirectory(prefix="trainingkit-probe-") as folder:
        file = Path(folder) / "inventory.json"
        arguments = ("-m", "trainingkit.cluster.probe_worker", str(file), str(seconds))
        result = launch(arguments, workers=workers, threads=threads_per_worker(workers), grace_s=5.0)
        if result.crashed or not file.exists():
            how = ", ".join(f"rank {rank}: {end}" for rank, end in result.crashed.items()) or "no inventory was left"
            raise ClusterError(
                "The probe's workers failed.",
                field="workers",
                found=how,
                expected="every worker to measure and leave",
                next_step="Try fewer workers; a longer text of the failure stands above.",
            )
        return json_module.loads(file.read_text(encoding="utf-8"))


def _show(table: dict[str, Any], output: Path, json: Path | None) -> int:
    from trainingkit.cli.probe_print import print_inventory
    from trainingkit.core import toml
    from trainingkit.core.errors import ConfigError
    from trainingkit.core.files import write_atomic

    print_inventory(table)
    try:
        write_atomic(output, toml.dump(table))
        if json is not None:
            write_atomic(json, json_module.dumps(table, indent=1) + "\n")
    except OSError as error:
        raise ConfigError(
            f"The inventory cannot be written: {error.strerror}.",
            field="--output",
            found=str(output if json is None else f"{output}, {json}"),
            expected="a file name in a folder that can be written",
            next_step="Make the folder, or choose another file.",
        ) from error
    sys.stdout.write(f"Written: {output}\n")
    return 0

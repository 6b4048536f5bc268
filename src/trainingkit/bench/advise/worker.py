"""One rank of advise's own launch: `python -m trainingkit.bench.advise.worker FOLDER`. Rank 0 leaves the facts."""

from __future__ import annotations

import faulthandler
import json
import sys
from pathlib import Path

from trainingkit.bench.advise.rank import Wish, measure_recipe
from trainingkit.bench.network.stage import Stage
from trainingkit.cluster.ending import run_and_exit
from trainingkit.cluster.launch import die_with_parent
from trainingkit.cluster.place import find_place
from trainingkit.core.files import write_atomic
from trainingkit.core.logging import capture_output
from trainingkit.trainer.recipe import load_recipe

RECIPE = "recipe.toml"
LOG = "rank-"
"""Begin of the names of the files that hold what the ranks wrote to stderr."""
OWN_LAUNCHER = "trainingkit"


def main(folder: str) -> None:
    """Measure as one rank."""
    faulthandler.enable()
    place = find_place()
    if place.launcher == OWN_LAUNCHER:
        die_with_parent()
    stage = Stage(Path(folder))
    capture_output(stage.folder / f"{LOG}{place.rank}.txt", keep_stdout=True)
    wish = Wish.from_table(json.loads(stage.spec.read_text(encoding="utf-8")))

    def tell(part: str, done: float) -> None:
        if place.rank == 0:
            stage.tell(part=part, contender="", done=done)

    facts = measure_recipe(load_recipe(str(Path(folder) / RECIPE)), place, wish, tell)
    if place.rank == 0:
        write_atomic(stage.measured, facts.to_json())


if __name__ == "__main__":
    run_and_exit(lambda: main(sys.argv[1]))

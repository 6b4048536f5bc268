"""One worker process of our own launch: `python -m trainingkit.trainer.worker RUN_FOLDER`.

It always ends with 0 once its outcome file is written: the elastic agent takes any other code for a crash. It leaves
through `os._exit`, because after a lost peer the process groups of this process can no longer be closed in order.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import traceback
from pathlib import Path

from trainingkit.cluster.launch import die_with_parent
from trainingkit.cluster.place import find_place
from trainingkit.core import outcome
from trainingkit.core.runfolder import RunFolder
from trainingkit.trainer.fit import Trainer
from trainingkit.trainer.recipe import load_run_recipe


def main(run_path: str) -> None:
    """Train as one rank in the run folder, and leave an outcome file whatever happens."""
    faulthandler.enable()
    die_with_parent()
    run = RunFolder(Path(run_path))
    rank = find_place().rank
    try:
        Trainer(load_run_recipe(run), run=run).fit(capture=True, joins=True)
    except BaseException as error:
        traceback.print_exc()
        if not run.outcome(rank).exists():
            outcome.leave_failure(run, rank, 0, error)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])

"""Does squeezing cost loss? The same recipe with plain DDP and with each codec, seed by seed, as real runs.

A seed fixes model and order of the data, so a pair of runs differs in the codec alone. The bounds of a check are the
smallest and the largest ratio over the seeds.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from trainingkit.bench.result import Check, Result, make_check, make_result
from trainingkit.bench.stats import Interval
from trainingkit.core.errors import StepError
from trainingkit.core.records import EvalRecord, StepRecord, read_records
from trainingkit.core.runfolder import RunFolder
from trainingkit.sync.section import NO_CODEC

GOAL = "<= 1.01"
NOTES = [
    "The bounds are the smallest and the largest ratio over the seeds, not a 90 % interval.",
    "A codec that selects travels in 8 bits for its warm-up steps, which the bytes include.",
]


def run(
    folder: Path,
    *,
    recipe: str,
    codecs: Sequence[str],
    beside: Sequence[str] = (),
    seeds: Sequence[int],
    overrides: Sequence[str] = (),
    command: str,
    say: Callable[[str], None],
) -> Result:
    """Train the recipe with plain DDP and each codec, for each seed.

    Args:
        folder: where the runs are kept.
        codecs: specs that must meet the goal; plain DDP is always the first contender.
        beside: further specs, shown without a goal.
        overrides: further `section.key=value` texts, the same for all.
        say: told before each run.

    Raises:
        StepError: a run failed; its own message is inside.
    """
    rows: list[dict[str, Any]] = []
    for seed in seeds:
        for codec in (NO_CODEC, *codecs, *beside):
            say(f"seed {seed}, codec {codec}")
            rows.append({"codec": codec, "seed": seed, **_train(folder, recipe, codec, seed, overrides)})
    for row in rows:
        row["loss_vs_plain"] = row["loss"] / _plain_losses(rows)[row["seed"]]
    checks = [_check(codec, rows) for codec in codecs]
    return make_result("quality", command=command, checks=checks, rows=rows, facts={"recipe": recipe}, notes=NOTES)


def _train(folder: Path, recipe: str, codec: str, seed: int, overrides: Sequence[str]) -> dict[str, Any]:
    """One real run of the command line; its last validation loss, steps and bytes."""
    place = folder / f"seed-{seed}-{''.join(c if c.isalnum() else '-' for c in codec)}"
    settings = [f"sync.codec={codec!r}", f"run.seed={seed}", f"run.folder={str(place)!r}", *overrides]
    arguments = [word for setting in settings for word in ("--set", setting)]
    done = subprocess.run(
        [sys.executable, "-m", "trainingkit", "train", recipe, *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise StepError(
            f"A run of the bench ended with {done.returncode}.",
            field="codec",
            found=codec,
            next_step=done.stderr.strip() or done.stdout.strip()[-500:],
        )
    records, _ = read_records(RunFolder(place).metrics(0))
    last = [record for record in records if isinstance(record, EvalRecord)][-1]
    steps = [record for record in records if isinstance(record, StepRecord)]
    return {"steps": last.step, **last.metrics, "sent_bytes": round(sum(r.wire_bytes for r in steps) / len(steps))}


def _plain_losses(rows: Sequence[dict[str, Any]]) -> dict[int, float]:
    """Plain DDP's loss by seed."""
    return {row["seed"]: row["loss"] for row in rows if row["codec"] == NO_CODEC}


def _check(codec: str, rows: Sequence[dict[str, Any]]) -> Check:
    """Loss with the codec over loss of plain DDP with the same seed."""
    ratios = [row["loss_vs_plain"] for row in rows if row["codec"] == codec]
    interval = Interval(sum(ratios) / len(ratios), min(ratios), max(ratios))
    return make_check(f"loss_vs_plain[{codec}]", interval, GOAL)

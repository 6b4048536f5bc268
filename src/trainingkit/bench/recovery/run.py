"""The asking side of the recovery bench: starts the workers, and turns what they found into checks."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from trainingkit.bench.recovery.losses import Losses, measure_losses
from trainingkit.bench.recovery.spec import Block, Found, RecoverySpec
from trainingkit.bench.result import Check, Result, make_check, make_result
from trainingkit.bench.stats import Interval, median_interval
from trainingkit.cluster.launch import launch
from trainingkit.core.errors import StepError

WORKER = "trainingkit.bench.recovery.worker"
OVERHEAD_GOAL, RATE_GOAL, BYTES_GOAL, SIGMA_GOAL = "<= 0.02", ">= 10", "<= 0.6", "<= 2"
GRACE_S = 5.0
NOTES = [
    "cpu_overhead is processor time, all threads of all ranks: with journal and a snapshot per block over without, "
    "less 1, for blocks of the same steps that take turns in the same processes. The goal is for the first interval.",
    "One copy of a training may be quicker than its twin for as long as it lives: again is that, of the two without, "
    "less 1. So there are two copies of each kind, and cpu_overhead is of both together.",
    "replay_rate counts reading, checking and decoding; it has no interval.",
    "loss_sigmas is how far the loss of a run that was killed and resumed is from the mean of those that nobody "
    "disturbed, in their standard deviations: the largest over the seeds.",
]


def run(spec: RecoverySpec, *, command: str, say: Callable[[str], None]) -> Result:
    """Measure, and make the shared result.

    Raises:
        StepError: the workers failed.
    """
    with tempfile.TemporaryDirectory(prefix="trainingkit-bench-") as name:
        folder = Path(name)
        say(f"journal and snapshots against none: {len(spec.intervals_s) * spec.rounds} rounds of four blocks")
        found = _measure(spec, folder)
        losses = measure_losses(spec, folder / "losses", say=say) if spec.seeds else None
    return result_of(spec, found, losses, command=command)


def _measure(spec: RecoverySpec, folder: Path) -> Found:
    (folder / "spec.json").write_text(spec.model_dump_json(), encoding="utf-8")
    ended = launch(("-m", WORKER, str(folder)), workers=spec.ranks, threads=1, grace_s=GRACE_S)
    left = folder / "found.json"
    if not left.exists():
        crashed = ", ".join(f"rank {rank} {how}" for rank, how in ended.crashed.items())
        raise StepError(
            "The workers of the bench failed.",
            field="bench recovery",
            found=crashed or "no result",
            next_step=f"Run one by hand to see why: {sys.executable} -m {WORKER} FOLDER",
        )
    return Found.from_json(left.read_text(encoding="utf-8"))


def result_of(spec: RecoverySpec, found: Found, losses: Losses | None, *, command: str) -> Result:
    """Checks, and a row for each interval and seed."""
    first = spec.intervals_s[0]
    checks = [make_check("cpu_overhead", _overhead(found.blocks, first), OVERHEAD_GOAL)]
    checks += [
        make_check("replay_rate", _exact(found.replayed_per_s / found.trained_per_s), RATE_GOAL),
        make_check("journal_vs_wire", _exact(found.journal_bytes / found.wire_bytes), BYTES_GOAL),
    ]
    rows = [_row(found.blocks, interval_s) for interval_s in spec.intervals_s]
    if losses is not None:
        checks.append(_loss_check(losses))
        rows += losses.rows()
    facts = {
        **found.facts,
        "journal_bytes_per_step": round(found.journal_bytes),
        "wire_bytes_per_step": round(found.wire_bytes),
        "trained_steps_per_s": found.trained_per_s,
        "replayed_steps_per_s": found.replayed_per_s,
        "replayed_steps": found.replayed_steps,
    }
    return make_result("recovery", command=command, checks=checks, rows=rows, facts=facts, notes=NOTES)


def _loss_check(losses: Losses) -> Check:
    value = losses.sigmas()
    return make_check("loss_sigmas", _exact(value), SIGMA_GOAL, unit="standard deviations")


def _overhead(blocks: Sequence[Block], interval_s: float) -> Interval:
    """Median and interval of (with / without) - 1 over the rounds of an interval."""
    return median_interval([b.cpu_s[1] / b.cpu_s[0] - 1.0 for b in blocks if b.interval_s == interval_s])


def _row(blocks: Sequence[Block], interval_s: float) -> dict[str, Any]:
    mine = [block for block in blocks if block.interval_s == interval_s]
    overhead = _overhead(blocks, interval_s)
    again = median_interval([block.again_cpu_s[1] / block.again_cpu_s[0] - 1.0 for block in mine])
    wall = median_interval([block.wall_s[1] / block.wall_s[0] - 1.0 for block in mine])
    return {
        "snapshot_every_s": interval_s,
        "steps_per_block": mine[0].steps,
        "rounds": len(mine),
        "cpu_overhead": round(overhead.value, 4),
        "wall_overhead": round(wall.value, 4),
        "again": round(again.value, 4),
        "waited_s": round(sum(block.waited_s for block in mine), 4),
    }


def _exact(value: float) -> Interval:
    return Interval(value, value, value)

"""Synthetic run folders for the tests of the page, written by the same code as real ones."""

from __future__ import annotations

import dataclasses
import math
import random
from pathlib import Path
from typing import Any

from trainingkit.core import decisions
from trainingkit.core.outcome import Outcome
from trainingkit.core.records import EvalRecord, EventRecord, Record, RecordWriter, StartRecord, StepRecord
from trainingkit.core.runfolder import RunFolder

T0 = 1_790_000_000.0
RECIPE = '[run]\nworkers = 2\nsteps = 160\n\n[optimizer]\nkind = "adamw"\nlr = 0.003\n'
DEAD_PID = 2**22 + 1


def start(rank: int = 0, world_size: int = 1, **more: Any) -> StartRecord:
    base = StartRecord(1, T0, rank, world_size, f"host-{'abcdefgh'[rank % 8]}", DEAD_PID, 1, 0, 160)
    return dataclasses.replace(base, **more)


def step(number: int, loss: float | None = 2.0, **more: Any) -> StepRecord:
    phases = {"forward": 0.2, "backward": 0.3, "stall": 0.1}
    base = StepRecord(1, number, T0 + 0.6 * number, loss, 1000, 0.6, phases, 4000, 1e-3)
    return dataclasses.replace(base, **more)


def evaluation(number: int, loss: float | None, **more: Any) -> EvalRecord:
    metrics: dict[str, Any] = {"loss": loss, "bits_per_byte": None if loss is None else loss / math.log(2)}
    return dataclasses.replace(EvalRecord(1, number, T0 + 0.6 * number + 0.01, metrics, 64, 0.5), **more)


def event(number: int, name: str, text: str = "", **more: Any) -> EventRecord:
    return dataclasses.replace(EventRecord(1, number, T0 + 0.6 * number, name, text), **more)


def make_run(folder: Path, records: dict[int, list[Record]], *, recipe: str | None = RECIPE) -> RunFolder:
    """A run folder with these records by rank."""
    run = RunFolder(folder)
    run.create()
    if recipe is not None:
        run.recipe.write_text(recipe, encoding="utf-8")
    for rank, rows in records.items():
        writer = RecordWriter(run.metrics(rank))
        for row in rows:
            writer.write(row)
        writer.close()
    return run


def end(run: RunFolder, ranks: int, status: str = "done", at: int = 160, **more: Any) -> None:
    """Leave the outcomes of all ranks."""
    for rank in range(ranks):
        Outcome(rank, status, 0 if status == "done" else 75, at, **more).write(run)


def realistic(folder: Path, *, ranks: int = 2, steps: int = 160, hidden: bool = False) -> RunFolder:
    """A run as the default recipe leaves it: rank 1 is slower, a slow first step, an abort, snapshots, evaluations."""
    dice = random.Random(7)
    rows: dict[int, list[Record]] = {r: [_full_start(r, ranks)] for r in range(ranks)}
    now = T0 + 2
    rows[0].append(evaluation(0, 5.53, time_s=now))
    for number in range(1, steps + 1):
        own = [_own(dice, rank, number) for rank in range(ranks)]
        step_s = max(sum(o.values()) for o in own) + 0.03
        phases = [{**o, "stall": step_s - sum(o.values())} for o in own]
        now += step_s
        loss = 1.55 + 4.0 * math.exp(-number / 30) + dice.gauss(0, 0.05)
        for rank in range(ranks):
            rows[rank].append(_full_step(number, now, loss + dice.gauss(0, 0.03), phases[rank], hidden=hidden))
        if number % 40 == 0 or number == steps:
            now += 1.5
            rows[0].append(evaluation(number, 1.6 + 3.9 * math.exp(-number / 30), time_s=now, seconds=1.3))
            rows[0].append(event(number, "snapshot", f"snapshots/step-{number} is whole", time_s=now))
    run = make_run(folder, rows)
    decisions.record(run.decisions, step=0, choice="threads", value=1, reason="2 cores for 2 workers.")
    decisions.record(run.decisions, step=0, choice="precision", value="bf16", reason="The processor has AMX bf16.")
    end(run, ranks, at=steps)
    return run


def _own(dice: random.Random, rank: int, number: int) -> dict[str, float]:
    slow = 1.09 if rank == 1 else 1.0
    first = 4.0 if number == 1 else 1.0
    times = {"input": 0.004, "forward": 0.17, "backward": 0.3, "update": 0.03, "other": 0.01}
    return {name: first * slow * seconds * dice.uniform(0.95, 1.08) for name, seconds in times.items()}


def _full_step(number: int, now: float, loss: float, phases: dict[str, float], *, hidden: bool) -> StepRecord:
    step_s = sum(phases.values())
    behind = {"encode": 0.02, "wire": 0.06, "decode": 0.01} if hidden else {}
    aborted = number == 70
    return StepRecord(
        1, number, now, None if aborted else loss, 8192, step_s, phases, 25_200_000, 1e-3, 1.0,
        not aborted, "the gradient was not finite" if aborted else None, behind,
    )  # fmt: skip


def _full_start(rank: int, ranks: int) -> StartRecord:
    machine = {"cpu": "AMD EPYC 9B14", "cores": 2, "ram_bytes": 25_769_803_776, "device": "cpu"}
    data = {
        "name": "Python standard library source", "task": "language", "sha256": "3f" * 32, "licence": "PSF-2.0",
        "train_samples": 60_000, "validation_samples": 3_000, "vocab_size": 256, "seq_len": 256,
        "bytes_per_token": 1.0, "notes": ["4 files that are not UTF-8 were left out."],
    }  # fmt: skip
    return start(
        rank, ranks, machine=machine, data=data,
        model={"name": "llama", "parameters": 6_303_744, "kind": "llama"},
        versions={"trainingkit": "0.1.0", "torch": "2.13.0", "python": "3.11.7"},
        sync={"name": "all|int4(block=64)", "fp32_bytes": 25_214_976, "bf16_bytes": 12_607_488},
    )  # fmt: skip

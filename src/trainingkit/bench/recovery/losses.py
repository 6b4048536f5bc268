"""Does a run that is killed and resumed learn as well? Real runs of the command line, every process killed at once."""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from trainingkit.bench.recovery.spec import RecoverySpec
from trainingkit.core.errors import StepError
from trainingkit.core.records import EvalRecord, EventRecord, StepRecord, read_records
from trainingkit.core.runfolder import RunFolder

STEPS = 60
LOSS_SCALE = {"full": "small"}
"""A smaller model, because there are ten whole runs."""
SNAPSHOT_EVERY = 20
KILL_BETWEEN = (22, 56)
"""Steps between which a run is killed: after a snapshot, before the end."""
DEADLINE_S = 900.0
POLL_S = 0.02
SOME_STEPS_S = 0.1


@dataclass(frozen=True)
class Losses:
    """Last validation losses by seed.

    Args:
        killed_after: the last step that was recorded when a run was killed.
        replayed: what the resumed run said of it.
    """

    undisturbed: tuple[float, ...]
    recovered: tuple[float, ...]
    killed_after: tuple[int, ...]
    replayed: tuple[str, ...]

    def sigmas(self) -> float:
        """How far the worst recovered loss is above or below the mean of the others, in standard deviations."""
        mean = statistics.mean(self.undisturbed)
        spread = statistics.stdev(self.undisturbed) if len(self.undisturbed) > 1 else float("nan")
        return max(abs(loss - mean) for loss in self.recovered) / spread

    def rows(self) -> list[dict[str, Any]]:
        """One per seed."""
        columns = zip(self.undisturbed, self.recovered, self.killed_after, self.replayed, strict=True)
        return [
            {"seed": seed, "loss": plain, "loss_after_recovery": loss, "killed_after": step, "replayed": text}
            for seed, (plain, loss, step, text) in enumerate(columns)
        ]


def measure_losses(spec: RecoverySpec, folder: Path, *, say: Callable[[str], None]) -> Losses:
    """Two runs per seed: one that nobody disturbs, and one that is killed once and resumed.

    Raises:
        StepError: a run failed otherwise than by being killed.
    """
    draw = random.Random(0)
    plain, recovered, killed_after, replayed = [], [], [], []
    for seed in range(spec.seeds):
        say(f"seed {seed}: undisturbed, then killed and resumed")
        calm, run = RunFolder(folder / f"calm-{seed}"), RunFolder(folder / f"killed-{seed}")
        _finish(_start(["train", "default", *_settings(spec, calm, seed)]))
        killed_after.append(_kill_after(_start(["train", "default", *_settings(spec, run, seed)]), run, draw))
        _finish(_start(["resume", str(run.root)]))
        plain.append(_last_loss(calm))
        recovered.append(_last_loss(run))
        replayed.append(_replay_text(run))
    return Losses(tuple(plain), tuple(recovered), tuple(killed_after), tuple(replayed))


def _settings(spec: RecoverySpec, run: RunFolder, seed: int) -> list[str]:
    settings = [
        *spec.overrides(LOSS_SCALE.get(spec.scale)),
        f"run.folder={str(run.root)!r}",
        f"run.seed={seed}",
        f"run.steps={STEPS}",
    ]
    settings += [f"snapshot.every={SNAPSHOT_EVERY}", "journal.steps=squeezed"]
    return [word for setting in settings for word in ("--set", setting)]


def _start(arguments: list[str]) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "trainingkit", *arguments]
    return subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True)


def _finish(process: subprocess.Popen[str]) -> None:
    _, stderr = process.communicate(timeout=DEADLINE_S)
    if process.returncode != 0:
        raise StepError(
            f"A run of the bench ended with {process.returncode}.",
            field="bench recovery",
            next_step=stderr.strip(),
        )


def _kill_after(process: subprocess.Popen[str], run: RunFolder, draw: random.Random) -> int:
    """Let a run get to a random step, and kill every process of it at once; returns the last recorded step."""
    step, deadline = draw.randint(*KILL_BETWEEN), time.monotonic() + DEADLINE_S
    while _last_step(run) < step and process.poll() is None and time.monotonic() < deadline:
        time.sleep(POLL_S)
    time.sleep(draw.random() * SOME_STEPS_S)
    if process.poll() is not None:
        raise StepError(
            "A run of the bench ended before it was to be killed.",
            field="bench recovery",
            found=f"step {_last_step(run)}, exit code {process.returncode}",
            expected=f"a run that is at work after step {step}",
            next_step=process.communicate()[1].strip() or "Look at its logs, then run the bench again.",
        )
    root = psutil.Process(process.pid)
    for each in [root, *root.children(recursive=True)]:
        each.kill()
    process.communicate()
    return _last_step(run)


def _last_step(run: RunFolder) -> int:
    records, _ = read_records(run.metrics(0))
    return max((record.step for record in records if isinstance(record, StepRecord)), default=0)


def _last_loss(run: RunFolder) -> float:
    records, _ = read_records(run.metrics(0))
    return [record.metrics["loss"] for record in records if isinstance(record, EvalRecord)][-1]


def _replay_text(run: RunFolder) -> str:
    records, _ = read_records(run.metrics(0))
    texts = [record.text for record in records if isinstance(record, EventRecord) and record.event == "replay"]
    return texts[-1].split(" in ")[0] if texts else "nothing"

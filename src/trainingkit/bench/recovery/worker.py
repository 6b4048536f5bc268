"""One rank of the recovery bench: `python -m trainingkit.bench.recovery.worker FOLDER`.

Copies of a training take turns in the same processes, block by block: some keep nothing, others a journal, and a
snapshot in the middle of each block. One copy may be quicker than its twin by a percent or two for as long as it lives;
so there are two of each kind, made in the order without, with, with, without, and a round is a block of each. Then one
more trains from its first snapshot on, and another replays its journal.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from trainingkit.bench.recovery.spec import Block, Found, RecoverySpec
from trainingkit.cluster.ending import run_and_exit
from trainingkit.cluster.place import find_place
from trainingkit.core.files import write_atomic
from trainingkit.core.records import StepRecord, read_records
from trainingkit.core.runfolder import RunFolder
from trainingkit.core.section import check
from trainingkit.data.loader import Loader
from trainingkit.trainer.journalling import Journalling
from trainingkit.trainer.kit import Kit
from trainingkit.trainer.loss import call_model
from trainingkit.trainer.rate import RecipeRate
from trainingkit.trainer.recipe import Recipe, load_recipe
from trainingkit.trainer.rng import seed_all
from trainingkit.trainer.session import Session, open_session

STEPS = 1_000_000
CALIBRATION_STEPS = 6
REPLAY_STEPS = 60


class Contender:
    """One training: its kit and its endless batches."""

    def __init__(self, session: Session, recipe: Recipe) -> None:
        self.recipe = recipe
        corpus: Any = recipe.data_section().open()
        seed_all(recipe.run.seed)
        model = recipe.model_section().build(corpus.info).to(session.device)
        optimizer = recipe.optimizer_section().build(model)
        rate = RecipeRate(optimizer, recipe.schedule_section(), STEPS)
        self.kit = Kit(session, model, optimizer, recipe, rate=rate, data=corpus.info)
        self.kit.model.train()
        loader = Loader(corpus.train, recipe.batch.size, recipe.run.seed, session.rank, session.world_size)
        self._batches: Iterator[Any] = iter(self.kit.batches(loader))

    @property
    def run(self) -> RunFolder:
        """Its folder."""
        return self.kit.session.run

    @property
    def journal(self) -> Journalling:
        """Its journal."""
        assert self.kit.journal is not None
        return self.kit.journal

    def take(self, steps: int) -> None:
        """Some steps."""
        for _ in range(steps):
            self.kit.step(call_model, next(self._batches))


class Worker:
    """The bench on one rank."""

    def __init__(self, spec: RecoverySpec, folder: Path) -> None:
        self._spec = spec
        self._folder = folder
        self._session = open_session(self._recipe("without"), run=RunFolder(folder / "without"))

    def run(self) -> Found:
        """Everything that is measured; the same on every rank but for rank 0's own clock."""
        found = Found(facts={"ranks": self._spec.ranks, "scale": self._spec.scale, "codec": self._spec.codec})
        first = Contender(self._session, self._recipe("without"))
        step_s = self._calibrate(first)
        second: Contender | None = None
        for interval_s in self._spec.intervals_s:
            steps = max(2, round(interval_s / step_s))
            kept = [self._keeping(f"with-{interval_s:g}s-{number}", every=steps) for number in range(2)]
            second = second or Contender(self._session, self._recipe("without"))
            for each in (*kept, second):
                each.take(steps // 2)
            found.blocks += [self._round((first, second), kept, interval_s, steps) for _ in range(self._spec.rounds)]
            for each in kept:
                each.journal.close()
        self._replay(found)
        return found

    def _recipe(self, name: str, *more: str) -> Recipe:
        settings = [*self._spec.overrides(), f"run.steps={STEPS}", f"run.folder={str(self._folder / name)!r}"]
        return load_recipe("default", [*settings, "snapshot.every=0", "run.log_every=1000000", *more])

    def _keeping(self, name: str, *, every: int) -> Contender:
        """A training with journal and snapshots in a folder of its own."""
        run = RunFolder(self._folder / name)
        run.create()
        session = dataclasses.replace(self._session, run=run, attempt=1 + run.metrics(0).exists())
        return Contender(session, self._recipe(name, f"snapshot.every={every}", "journal.steps=squeezed"))

    def _calibrate(self, contender: Contender) -> float:
        contender.take(2)
        began = time.perf_counter()
        contender.take(CALIBRATION_STEPS)
        return self._mean((time.perf_counter() - began) / CALIBRATION_STEPS)

    def _round(self, without: Sequence[Contender], kept: Sequence[Contender], interval_s: float, steps: int) -> Block:
        """A block of each copy, in the order in which they were made."""
        waited_s = self._waited(kept)
        taken = [self._timed(each, steps) for each in (without[0], *kept, without[1])]
        cpu, wall = zip(*taken, strict=True)
        return Block(
            interval_s,
            steps,
            cpu_s=(cpu[0] + cpu[3], cpu[1] + cpu[2]),
            wall_s=(wall[0] + wall[3], wall[1] + wall[2]),
            waited_s=self._waited(kept) - waited_s,
            again_cpu_s=(cpu[0], cpu[3]),
        )

    def _timed(self, contender: Contender, steps: int) -> tuple[float, float]:
        """Processor seconds of all ranks for some steps, and seconds that passed here."""
        self.meet()
        cpu_began, began = time.process_time(), time.perf_counter()
        contender.take(steps)
        self.meet()
        return self._mean(time.process_time() - cpu_began) * self._spec.ranks, time.perf_counter() - began

    def _waited(self, kept: Sequence[Contender]) -> float:
        return sum(each.journal.waited_s for each in kept)

    def _replay(self, found: Found) -> None:
        """Train on after the snapshot of the beginning, then let another training in the same folder replay that."""
        kept = self._keeping("replayed", every=0)
        began = time.perf_counter()
        kept.take(REPLAY_STEPS)
        seconds = self._mean(time.perf_counter() - began)
        kept.journal.close()
        found.journal_bytes = self._mean(kept.journal.written_bytes / REPLAY_STEPS)
        found.wire_bytes = self._mean(_sent_bytes(kept.run, self._session.rank) / REPLAY_STEPS)
        found.trained_per_s = REPLAY_STEPS / seconds
        self.meet()
        again = self._keeping("replayed", every=0)
        replayed = again.kit.replayed
        assert replayed is not None and replayed.steps == REPLAY_STEPS
        found.replayed_steps = replayed.steps
        found.replayed_per_s = replayed.steps / self._mean(replayed.seconds)
        again.journal.close()

    def meet(self) -> None:
        """Wait for the other ranks."""
        dist.barrier(group=self._session.group)

    def _mean(self, value: float) -> float:
        total = torch.tensor([value], dtype=torch.float64)
        dist.all_reduce(total, group=self._session.group)
        return float(total) / self._spec.ranks


def _sent_bytes(run: RunFolder, rank: int) -> int:
    records, _ = read_records(run.metrics(rank))
    return sum(record.wire_bytes for record in records if isinstance(record, StepRecord))


def main(folder: Path) -> None:
    """Measure, and leave what was found on rank 0."""
    spec = check(RecoverySpec, RecoverySpec.model_validate_json((folder / "spec.json").read_text()).model_dump())
    worker = Worker(spec, folder)
    found = worker.run()
    if find_place().rank == 0:
        write_atomic(folder / "found.json", found.to_json())
    worker.meet()


if __name__ == "__main__":
    run_and_exit(lambda: main(Path(sys.argv[1])))

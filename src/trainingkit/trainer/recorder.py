"""One rank's records: every step, evaluation and event goes to its metrics file; rank 0 also shows progress."""

from __future__ import annotations

import os
import time
from typing import Any

from trainingkit.cluster.machine import describe_machine, describe_versions
from trainingkit.core.datainfo import DataInfo
from trainingkit.core.errors import StepError
from trainingkit.core.logging import LOG
from trainingkit.core.records import EvalRecord, EventRecord, Record, RecordWriter, StartRecord, StepRecord
from trainingkit.trainer.advice import go_on
from trainingkit.trainer.engine import StepResult
from trainingkit.trainer.progress import Glance, Progress, make_progress
from trainingkit.trainer.session import Session


class Recorder:
    """Writes the records of one attempt. A record that cannot be written is a StepError: nothing is lost silently.

    Args:
        start_step: steps that were done before this attempt.
        total: steps of the whole run, if known.
    """

    def __init__(self, session: Session, *, start_step: int, total: int | None, log_every: int) -> None:
        self._session = session
        self._start_step = start_step
        self._total = total
        self._writer = RecordWriter(session.run.metrics(session.rank))
        self._plain_bytes = 0
        self._progress: Progress = make_progress(rank=session.rank, total=total, every=log_every, start_step=start_step)

    def start(self, *, model: dict[str, Any], data: DataInfo | None, sync: dict[str, Any]) -> None:
        """What is run, and on what."""
        self._plain_bytes = int(sync.get("fp32_bytes", 0))
        session = self._session
        machine = describe_machine()
        self._write(
            StartRecord(
                attempt=session.attempt,
                time_s=time.time(),
                rank=session.rank,
                world_size=session.world_size,
                host=machine["host"],
                pid=os.getpid(),
                threads=session.threads,
                start_step=self._start_step,
                total_steps=self._total,
                model=model,
                data=data.summary() if data else {},
                machine={**machine, "device": str(session.device), "compute": session.compute},
                versions=describe_versions(),
                sync=sync,
            )
        )

    def step(self, step: int, result: StepResult, step_s: float, phases: dict[str, float]) -> None:
        """One optimizer step."""
        self._write(
            StepRecord(
                attempt=self._session.attempt,
                step=step,
                time_s=time.time(),
                loss=result.loss,
                tokens=result.tokens,
                step_s=step_s,
                phases=phases,
                wire_bytes=result.stats.wire_bytes,
                lr=result.lr,
                grad_norm=result.grad_norm,
                committed=result.committed,
                reason=result.reason,
                hidden=result.stats.hidden,
            )
        )
        tokens_per_s = result.tokens * self._session.world_size / step_s
        stall = phases.get("stall", 0.0) / step_s
        sent = result.stats.wire_bytes
        self._progress.step(Glance(step, result.loss, tokens_per_s, stall, sent, self._plain_bytes))
        if result.reason is not None:
            self.event(step, "abort", f"Step {step} was aborted: {result.reason}.")

    def evaluation(self, step: int, metrics: dict[str, float], samples: int, seconds: float) -> None:
        """One evaluation; rank 0 keeps it."""
        if self._session.rank != 0:
            return
        record = EvalRecord(self._session.attempt, step, time.time(), metrics, samples, seconds)
        self._write(record)
        self._progress.evaluation(record)

    def event(self, step: int, event: str, text: str, *, show: bool = True) -> None:
        """Something worth a mark in the page, a log line, and (with `show`) a line on the screen."""
        self._write(EventRecord(self._session.attempt, step, time.time(), event, text))
        LOG.info("%s", text)
        if show:
            self._progress.message(text)

    def close(self) -> None:
        """Flush and take the progress down."""
        self._progress.close()
        self._writer.close()

    def _write(self, record: Record) -> None:
        try:
            self._writer.write(record)
        except OSError as error:
            raise StepError(
                f"The records of this run cannot be written: {error.strerror or error}.",
                field="run.folder",
                found=str(self._session.run.metrics(self._session.rank)),
                expected="room and permission for some hundred bytes a step",
                next_step=f"Mend it, then {go_on(self._session.run)}.",
            ) from error

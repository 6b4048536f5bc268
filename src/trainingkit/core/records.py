"""What a run writes down: one JSON object a line in `metrics/rank-*.jsonl`, each with its `kind`.

Records are append-only. A resumed run appends with a higher `attempt`; for a step that occurs twice the
later attempt counts (`latest_steps`), so nothing is rewritten and nothing is lost.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from trainingkit.core.files import end_last_line

PHASES = ("input", "forward", "backward", "encode", "wire", "decode", "stall", "update", "other")
"""Where a step's time can go, in order. Exclusive seconds of the step's own thread; they add up to `step_s`.

`stall` is waiting: for peers or for the wire after the rank's own backward was done. encode / wire / decode
are what of them was *not* hidden behind backward; hidden work stands in `hidden`.
"""


@dataclass(frozen=True)
class StartRecord:
    """One per attempt and rank: what was run, and on what."""

    attempt: int
    time_s: float
    rank: int
    world_size: int
    host: str
    pid: int
    threads: int
    start_step: int
    total_steps: int | None
    model: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    sync: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StepRecord:
    """One per optimizer step and rank.

    Args:
        step: 1-based number of this step.
        time_s: Unix time at its end.
        loss: mean loss over this rank's own samples of the step (None where it was not finite).
        tokens: tokens (or samples, for a model without tokens) of this rank.
        step_s: wall seconds of the step.
        phases: seconds by PHASES; absent means zero.
        hidden: seconds of encode / wire / decode that ran behind other phases.
        wire_bytes: bytes this rank sent for the step's exchange.
        committed: False when the step was aborted, with `reason`.
    """

    attempt: int
    step: int
    time_s: float
    loss: float | None
    tokens: int
    step_s: float
    phases: dict[str, float]
    wire_bytes: int
    lr: float
    grad_norm: float | None = None
    committed: bool = True
    reason: str | None = None
    hidden: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class EvalRecord:
    """One per evaluation, rank 0 only. `metrics` holds `loss` and, where they apply, `bits_per_byte`, `accuracy`."""

    attempt: int
    step: int
    time_s: float
    metrics: dict[str, float]
    samples: int
    seconds: float


@dataclass(frozen=True)
class EventRecord:
    """Anything else worth a mark in the page: `snapshot`, `abort`, `preempted`, `resume`, `early_stop`, `error`."""

    attempt: int
    step: int
    time_s: float
    event: str
    text: str
    detail: dict[str, Any] = field(default_factory=dict)


Record = StartRecord | StepRecord | EvalRecord | EventRecord
KINDS: dict[str, type[Record]] = {"start": StartRecord, "step": StepRecord, "eval": EvalRecord, "event": EventRecord}
_NAMES = {kind: name for name, kind in KINDS.items()}


class RecordWriter:
    """Appends records to one rank's file, a line each, flushed at once so that a killed rank leaves its steps."""

    def __init__(self, path: Path) -> None:
        end_last_line(path)
        self._handle: IO[str] = open(path, "a", encoding="utf-8", buffering=1)  # noqa: SIM115 - closed by close()

    def write(self, record: Record) -> None:
        """Append one record."""
        row = {"kind": _NAMES[type(record)], **_finite(dataclasses.asdict(record))}
        self._handle.write(json.dumps(row, allow_nan=False) + "\n")

    def close(self) -> None:
        """Close the file."""
        self._handle.close()


def read_records(path: Path) -> tuple[list[Record], int]:
    """All records of a file in order, and how many lines could not be read (a killed rank leaves at most one)."""
    records: list[Record] = []
    bad = 0
    if not path.exists():
        return records, bad
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            kind = KINDS[row.pop("kind")]
            known = {f.name for f in dataclasses.fields(kind)}
            records.append(kind(**{k: v for k, v in row.items() if k in known}))
        except (ValueError, KeyError, TypeError, AttributeError):
            bad += 1
    return records, bad


def latest_steps(records: Iterable[Record]) -> list[StepRecord]:
    """Step records in step order; of a step that was run twice, the one of the latest attempt."""
    latest: dict[int, StepRecord] = {}
    for record in records:
        if isinstance(record, StepRecord):
            known = latest.get(record.step)
            if known is None or record.attempt >= known.attempt:
                latest[record.step] = record
    return [latest[step] for step in sorted(latest)]


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value

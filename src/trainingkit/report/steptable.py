"""Steps of all ranks as one table of arrays, a row per step. Every plot and most sentences read this."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainingkit.core.records import PHASES, EvalRecord, EventRecord, StepRecord
from trainingkit.report.rundata import RankData

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class StepTable:
    """One row per step; all arrays are [steps].

    Args:
        step: int64, ascending.
        attempt: int64, the attempt that took the step.
        time_s: Unix time at the end of the step.
        elapsed_s: seconds of training until the end of the step; pauses between attempts do not count.
        loss: mean over ranks weighted by their tokens; NaN when a rank's loss was not finite.
        tokens: summed over ranks.
        step_s: mean over ranks.
        tokens_per_s: all ranks' tokens by the slowest rank's seconds.
        wire_bytes: sent per rank, mean over ranks.
        committed: bool; False when a rank aborted the step.
        phases, hidden: mean seconds over ranks by phase, for the phases that occur, in the order of PHASES.
    """

    step: NDArray[np.int64]
    attempt: NDArray[np.int64]
    time_s: Floats
    elapsed_s: Floats
    loss: Floats
    tokens: Floats
    step_s: Floats
    tokens_per_s: Floats
    wire_bytes: Floats
    committed: NDArray[np.bool_]
    phases: dict[str, Floats]
    hidden: dict[str, Floats]

    def __len__(self) -> int:
        return len(self.step)


def phase_names(tables: Sequence[dict[str, float]]) -> list[str]:
    """Phases that took any time, in the order of PHASES; names that it does not know come last."""
    seen = {name for table in tables for name, seconds in table.items() if seconds > 0}
    return [name for name in PHASES if name in seen] + sorted(seen - set(PHASES))


def complete_phases(record: StepRecord) -> dict[str, float]:
    """The record's phases, with what they leave of `step_s` added to `other`, so that they add up."""
    rest = record.step_s - sum(record.phases.values())
    if rest <= 1e-3 * record.step_s:
        return record.phases
    return {**record.phases, "other": record.phases.get("other", 0.0) + rest}


def build(ranks: Sequence[RankData]) -> StepTable:
    """Merge the ranks' steps. A step that only some ranks have is averaged over those."""
    rows = [record for rank in ranks for record in rank.steps]
    step, where = np.unique(np.array([r.step for r in rows], dtype=np.int64), return_inverse=True)
    count = np.bincount(where, minlength=len(step)).astype(np.float64)

    def total(values: Sequence[float] | Floats) -> Floats:
        return np.bincount(where, weights=np.asarray(values, dtype=np.float64), minlength=len(step)).astype(np.float64)

    tokens = np.array([r.tokens for r in rows], dtype=np.float64)
    loss = np.array([r.loss if isinstance(r.loss, (int, float)) else np.nan for r in rows], dtype=np.float64)
    weight = np.where(total(tokens)[where] > 0, tokens, 1.0) if rows else tokens
    slowest = np.zeros(len(step))
    np.maximum.at(slowest, where, np.array([r.step_s for r in rows], dtype=np.float64))
    attempt = np.zeros(len(step), dtype=np.int64)
    np.maximum.at(attempt, where, np.array([r.attempt for r in rows], dtype=np.int64))
    phases = [complete_phases(r) for r in rows]
    step_s = total([r.step_s for r in rows]) / count
    time_s = total([r.time_s for r in rows]) / count
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = np.where(slowest > 0, total(tokens) / slowest, np.nan)
        mean_loss = total(loss * weight) / total(weight)
    return StepTable(
        step=step,
        attempt=attempt,
        time_s=time_s,
        elapsed_s=_elapsed(time_s, step_s, attempt),
        loss=np.where(np.isfinite(mean_loss), mean_loss, np.nan),
        tokens=total(tokens),
        step_s=step_s,
        tokens_per_s=rate,
        wire_bytes=total([r.wire_bytes for r in rows]) / count,
        committed=total([0.0 if r.committed else 1.0 for r in rows]) == 0,
        phases=_means(phases, total, count),
        hidden=_means([r.hidden for r in rows], total, count),
    )


def place(table: StepTable, record: EvalRecord | EventRecord) -> float:
    """Where on the `elapsed_s` axis something lies that happened after `record.step`."""
    row = int(np.searchsorted(table.step, record.step, side="right")) - 1
    if row < 0:
        return 0.0
    begin = float(table.elapsed_s[row])
    if table.attempt[row] != record.attempt:
        return begin
    later = max(0.0, record.time_s - float(table.time_s[row]))
    end = float(table.elapsed_s[row + 1]) if row + 1 < len(table) else begin + later
    return min(begin + later, end)


def _elapsed(time_s: Floats, step_s: Floats, attempt: NDArray[np.int64]) -> Floats:
    """Wall time within an attempt; across a pause, or where the clock ran backwards, the step's own seconds."""
    if len(time_s) == 0:
        return time_s
    gap = np.diff(time_s)
    usable = (np.diff(attempt) == 0) & (gap > 0)
    return np.cumsum(np.concatenate([step_s[:1], np.where(usable, gap, step_s[1:])]))


def _means(
    tables: Sequence[dict[str, float]], total: Callable[[list[float]], Floats], count: Floats
) -> dict[str, Floats]:
    return {name: total([table.get(name, 0.0) for table in tables]) / count for name in phase_names(tables)}

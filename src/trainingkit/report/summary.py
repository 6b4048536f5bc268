"""The numbers behind the headline: how the loss moved, where the time went, which rank was slowest, how it ended."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import Any

import numpy as np

from trainingkit.core.outcome import verdict
from trainingkit.report.rundata import RankData, RunData
from trainingkit.report.steptable import StepTable, complete_phases

FLAT = 0.01
"""A relative change of the loss below this is called flat."""
EVEN = 0.03
"""Ranks whose own work differs by no more than this are called even."""

SILENT = "it left no word of how, so it was killed or its machine went down"


@dataclass(frozen=True)
class LossChange:
    """How a loss moved.

    Args:
        source: "validation" or "training".
        unit: "bits per byte" or "loss".
        first, last: None where the value was not finite.
        best, best_step: the lowest finite value and its step.
        evaluations: how many validation points there are.
    """

    source: str
    unit: str
    first: float | None
    last: float | None
    best: float | None
    best_step: int
    evaluations: int

    @property
    def relative(self) -> float | None:
        """(last - first) / |first|; None where that cannot be said."""
        if self.first is None or self.last is None or self.first == 0:
            return None
        return (self.last - self.first) / abs(self.first)

    @property
    def direction(self) -> str:
        """ "fell", "rose", "flat" or "unknown"."""
        change = self.relative
        if change is None:
            return "unknown"
        return "flat" if abs(change) < FLAT else "fell" if change < 0 else "rose"


@dataclass(frozen=True)
class TimeShares:
    """Where a step's time went, mean over steps and ranks.

    Args:
        shares: part of the step by phase, largest first; adds up to 1.
        total_s: training time including what lies between steps (evaluation, snapshots).
        steps_s, evaluation_s: seconds inside steps, and in evaluations.
    """

    step_s: float
    shares: dict[str, float]
    total_s: float
    steps_s: float
    evaluation_s: float
    tokens_per_s: float


@dataclass(frozen=True)
class RankMeans:
    """One rank's mean step, in seconds. `own_s` is its own work: the step without `stall`."""

    rank: int
    host: str
    step_s: float
    own_s: float
    stall_s: float
    phases: dict[str, float]


@dataclass(frozen=True)
class Comparison:
    """Ranks side by side, over the steps that all of them took.

    Args:
        slowest: the rank with the most own work; None when there are fewer than two, or all are within EVEN.
        ratio: own work of the slowest rank by the median of the others.
        spread: own work of the slowest by that of the fastest, minus 1.
        others_stall_s: mean wait of the others a step.
    """

    ranks: tuple[RankMeans, ...]
    slowest: RankMeans | None
    ratio: float
    spread: float
    others_stall_s: float
    left_out: tuple[int, ...]


@dataclass(frozen=True)
class Ending:
    """How the run ended: status "done", "preempted", "failed", "running" or "unknown"; and what was said."""

    status: str
    message: str


def validation_unit(run: RunData) -> str | None:
    """The metric that stands for validation: bits per byte where any evaluation has it, else the loss."""
    for metric in ("bits_per_byte", "loss"):
        if any(e.metrics.get(metric) is not None for e in run.evals):
            return metric
    return "loss" if run.evals else None


def finite(value: Any) -> float | None:
    """`value` as a float when it is a finite number, else None."""
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def loss_change(run: RunData, table: StepTable) -> LossChange | None:
    """Validation from its first to its last point when there are two; else training; None when there is no step.

    Training is compared by the means of its first and its last twentieth.
    """
    metric = validation_unit(run)
    if metric is not None and len(run.evals) >= 2:
        values = [finite(e.metrics.get(metric)) for e in run.evals]
        steps = [e.step for e in run.evals]
        return _change("validation", metric.replace("_", " "), values, steps, len(values))
    if len(table) == 0:
        return None
    width = max(1, len(table) // 20)
    ends = [_mean(table.loss[:width]), _mean(table.loss[-width:])]
    return _change("training", "loss", ends, [int(table.step[0]), int(table.step[-1])], len(run.evals))


def _mean(values: np.ndarray) -> float | None:
    """Mean of the finite values (an aborted step has none); None when not one is finite."""
    usable = values[np.isfinite(values)]
    return float(usable.mean()) if len(usable) else None


def _change(source: str, unit: str, values: list[float | None], steps: list[int], evaluations: int) -> LossChange:
    known = [(value, step) for value, step in zip(values, steps, strict=True) if value is not None]
    best, best_step = min(known, default=(None, 0), key=lambda pair: pair[0])
    return LossChange(source, unit, values[0], values[-1], best, best_step, evaluations)


def time_shares(run: RunData, table: StepTable) -> TimeShares | None:
    """Mean step by phase; None when there is no step that took time."""
    steps_s = float(table.step_s.sum())
    if steps_s <= 0:
        return None
    sums = {name: float(seconds.sum()) for name, seconds in table.phases.items()}
    whole = sum(sums.values()) or 1.0
    shares = {name: value / whole for name, value in sorted(sums.items(), key=lambda pair: -pair[1]) if value > 0}
    total_s = float(table.elapsed_s[-1])
    return TimeShares(
        step_s=steps_s / len(table),
        shares=shares,
        total_s=total_s,
        steps_s=steps_s,
        evaluation_s=sum(e.seconds for e in run.evals),
        tokens_per_s=float(table.tokens.sum()) / max(total_s, 1e-12),
    )


def compare(run: RunData) -> Comparison:
    """Mean phases of each rank of the latest attempt, over the steps that all of them took."""
    start = run.last_start
    chosen = [r for r in run.ranks if r.steps and (start is None or r.rank < start.world_size)]
    left_out = tuple(r.rank for r in run.ranks if r.steps and r not in chosen)
    shared = set.intersection(*({s.step for s in r.steps} for r in chosen)) if chosen else set()
    ranks = tuple(_rank_means(r, shared or {s.step for s in r.steps}) for r in chosen)
    if len(ranks) < 2:
        return Comparison(ranks, None, 1.0, 0.0, 0.0, left_out)
    slowest = max(ranks, key=lambda r: r.own_s)
    others = [r for r in ranks if r is not slowest]
    usual, least = statistics.median(r.own_s for r in others), min(r.own_s for r in others)
    spread = slowest.own_s / least - 1 if least > 0 else 0.0
    return Comparison(
        ranks=ranks,
        slowest=slowest if spread > EVEN else None,
        ratio=slowest.own_s / usual if usual > 0 else 1.0,
        spread=spread,
        others_stall_s=statistics.fmean(r.stall_s for r in others),
        left_out=left_out,
    )


def _rank_means(rank: RankData, wanted: set[int]) -> RankMeans:
    steps = [s for s in rank.steps if s.step in wanted]
    sums: dict[str, float] = {}
    for record in steps:
        for name, seconds in complete_phases(record).items():
            sums[name] = sums.get(name, 0.0) + seconds
    phases = {name: seconds / len(steps) for name, seconds in sums.items()}
    step_s = sum(s.step_s for s in steps) / len(steps)
    stall_s = phases.get("stall", 0.0)
    return RankMeans(rank.rank, rank.host, step_s, step_s - stall_s, stall_s, phases)


def ending(run: RunData) -> Ending:
    """Judge by the outcome files; without them by whether a process of the run still lives.

    A rank that lost its peer is never the cause: when the peer left no word, the peer is named.
    """
    start = run.last_start
    world_size = start.world_size if start else len(run.ranks)
    missing = [rank for rank in range(world_size) if rank not in run.outcomes]
    explained = any(o.status == "failed" and not o.secondary for o in run.outcomes.values())
    if run.outcomes and (explained or not missing):
        judged = verdict(run.outcomes, world_size, {})
        return Ending(judged.status, judged.message)
    if run.running:
        return Ending("running", "")
    if run.outcomes or run.running is False:
        judged = verdict(run.outcomes, world_size, dict.fromkeys(missing, SILENT))
        return Ending(judged.status, judged.message)
    return Ending("unknown", "")

"""The page's words: pure functions from numbers to plain sentences."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from trainingkit.core.units import format_bytes, format_count, format_seconds
from trainingkit.report.summary import Comparison, Ending, LossChange, RankMeans, TimeShares

GLOSSARY: dict[str, str] = {
    "input": "Waiting for the next batch. When this is large, reading or preparing the data is the brake.",
    "forward": "The model computes its predictions and the loss.",
    "backward": "The gradients are computed. Exchange that runs meanwhile costs nothing and is not counted here.",
    "encode": "Gradients are packed into messages (squeezed), as far as that was not hidden behind backward.",
    "wire": "Messages travel between ranks, as far as that was not hidden behind backward.",
    "decode": "Received messages are unpacked and summed, as far as that was not hidden behind backward.",
    "stall": "Waiting for other ranks or for the network after the rank's own backward was done.",
    "update": "The optimizer changes the parameters.",
    "other": "Everything of the step that has no name of its own: bookkeeping, logging, the control lane.",
    "hidden work": "Encode, wire and decode that ran while the processor was busy with backward: it cost no time.",
    "own work": "A rank's step without its stall: what it needs by itself. The rank with the most sets the pace.",
    "rank": "One worker process. All ranks take each step together, on different samples.",
}

STATUS_WORDS = {
    "done": "done",
    "preempted": "stopped on request, saved",
    "failed": "failed",
    "running": "still running",
    "unknown": "no word of its end",
}


def number(value: float) -> str:
    """Three to four digits, as people write losses: 7.98, 0.0123, 1.2e-05."""
    return f"{value:.2f}" if 0.1 <= abs(value) < 1000 else f"{value:.3g}"


def percent(share: float) -> str:
    """0.481 -> '48 %'; below one percent one decimal is kept."""
    return f"{share * 100:.1f} %" if 0 < abs(share) < 0.00995 else f"{share * 100:.0f} %"


def plural(count: int, word: str) -> str:
    """'1 step', '160 steps'."""
    return f"{count} {word}" if count == 1 else f"{count:,} {word}s".replace(",", " ")


def joined(words: list[str]) -> str:
    """'a', 'a and b', 'a, b and c'."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def moment(time_s: float) -> str:
    """Unix time -> '2026-11-30 13:35 UTC'."""
    try:
        return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (OverflowError, OSError, ValueError):
        return "at an unknown time"


def loss_sentence(change: LossChange | None, steps: int, total_s: float) -> str:
    """Did the loss fall?"""
    if change is None:
        return "No step was recorded, so there is no loss to speak of."
    name = f"{change.source.capitalize()} {change.unit}"
    span = f"in {plural(steps, 'step')} ({format_seconds(total_s)})"
    if change.last is None:
        return f"{name} is not a number at the end: the training broke down {span}.{_best(change)}"
    if change.first is None:
        return f"{name} was not a number at first and is {number(change.last)} {span}."
    ends = f"from {number(change.first)} to {number(change.last)}"
    verbs = {"fell": f"fell {ends}", "rose": f"rose {ends}", "flat": f"stayed flat, {ends},"}
    verb = verbs.get(change.direction, f"went {ends}")
    return f"{name} {verb} {span}.{_best(change)}{_evaluated(change)}"


def _best(change: LossChange) -> str:
    if change.source != "validation" or change.best is None:
        return ""
    if change.last is not None and change.last - change.best <= 0.01 * abs(change.best):
        return ""
    return f" Its best was {number(change.best)}, at step {change.best_step}."


def _evaluated(change: LossChange) -> str:
    if change.source == "validation":
        return ""
    if change.evaluations == 0:
        return " Nothing was evaluated on held-out data."
    return " Held-out data was evaluated only once, so it shows no change."


def loss_figure(change: LossChange | None) -> str:
    """The big figure above the loss sentence: '7.98 → 2.41'."""
    if change is None:
        return "no steps"
    first, last = (("not a number" if v is None else number(v)) for v in (change.first, change.last))
    return f"{first} → {last}"


def time_sentence(shares: TimeShares | None) -> str:
    """Where did each step's time go?"""
    if shares is None:
        return "No step was recorded, so no time was measured."
    parts = [f"{name} {percent(share)}" for name, share in shares.shares.items() if share >= 0.005][:6]
    return f"Of each step's {format_seconds(shares.step_s)}: {joined(parts) if parts else 'nothing was measured'}."


def between_sentence(shares: TimeShares) -> str:
    """What happened outside the steps; empty when that was next to nothing."""
    between = shares.total_s - shares.steps_s
    if between < 0.02 * shares.total_s:
        return ""
    evaluation = min(shares.evaluation_s, between)
    told = f", {format_seconds(evaluation)} of it evaluation" if evaluation > 0 else ""
    share = percent(between / shares.total_s)
    return f"Between steps: {format_seconds(between)} ({share} of {format_seconds(shares.total_s)}){told}."


def time_figure(shares: TimeShares | None) -> str:
    """The big figure above the time sentence: 'backward 48 %'."""
    if shares is None or not shares.shares:
        return "no steps"
    name, share = next(iter(shares.shares.items()))
    return f"{name} {percent(share)}"


def rank_name(rank: RankMeans) -> str:
    """'rank 1 on host-b'."""
    return f"rank {rank.rank} on {rank.host}" if rank.host else f"rank {rank.rank}"


def rank_sentence(comparison: Comparison) -> str:
    """Which rank was slowest?"""
    count = len(comparison.ranks)
    if count == 0:
        return "No rank recorded a step."
    if count == 1:
        return "One process did all the work: there is no other rank to compare with."
    if comparison.slowest is None:
        return f"The {count} ranks were even: their own work differed by {percent(comparison.spread)}."
    slowest, name = comparison.slowest, rank_name(comparison.slowest)
    other = f"rank {_other(comparison)}'s" if count == 2 else "the median of the others"
    text = f"{name[0].upper()}{name[1:]} was slowest: its own work took {comparison.ratio:.2f}x {other}"
    waited = comparison.others_stall_s
    if waited <= slowest.stall_s or waited < 0.005 * slowest.step_s:
        return f"{text}."
    verb = "which waited" if count == 2 else "and they waited"
    return f"{text}, {verb} {format_seconds(waited)} a step for it and the network."


def _other(comparison: Comparison) -> int:
    return next(r.rank for r in comparison.ranks if r is not comparison.slowest)


def rank_figure(comparison: Comparison) -> str:
    """The big figure above the rank sentence: 'rank 1 · 1.08x'."""
    if comparison.slowest is not None:
        return f"rank {comparison.slowest.rank} · {comparison.ratio:.2f}x"
    return {0: "no ranks", 1: "one process"}.get(len(comparison.ranks), "all even")


def model_name(model: Mapping[str, Any]) -> str:
    """'llama, 6.3 M parameters'."""
    name = str(model.get("name") or model.get("kind") or "model not recorded")
    count = model.get("parameters")
    return f"{name}, {format_count(count)} parameters" if isinstance(count, (int, float)) else name


def run_sentence(
    model: Mapping[str, Any], data: Mapping[str, Any], workers: int, steps: int, planned: int | None
) -> str:
    """What was run?"""
    on = f" on {data['name']}" if data.get("name") else ""
    of = f" of {planned:,} planned".replace(",", " ") if planned is not None and planned != steps else ""
    return f"{model_name(model)}{on}; {plural(workers, 'worker')}, {plural(steps, 'step')}{of}."


def ending_sentence(end: Ending, attempts: int, last_step: int, early: str = "") -> str:
    """How did it end?"""
    texts = {
        "done": f"It finished at step {last_step}.",
        "preempted": end.message,
        "failed": end.message.strip().splitlines()[0] if end.message.strip() else "It failed.",
        "running": f"It is still running; step {last_step} was the last when this page was made.",
        "unknown": f"No rank said how it ended: it still runs, or was killed after step {last_step}.",
    }
    again = f" It took {attempts} attempts." if attempts > 1 else ""
    return texts[end.status] + (f" It stopped early: {early}" if early else "") + again


def bytes_sentence(mean_bytes: float, sync: Mapping[str, Any]) -> str:
    """What a rank sent a step, beside what plain DDP would have sent."""
    text = f"On average a rank sent {format_bytes(mean_bytes)} a step."
    others = []
    for wire in ("bf16", "fp32"):
        plain = sync.get(f"{wire}_bytes")
        if isinstance(plain, (int, float)) and plain > 1.02 * mean_bytes > 0:
            others.append(f"{format_bytes(plain)} with a {wire} wire ({plain / mean_bytes:.1f}x)")
    return f"{text} Plain DDP would send {' and '.join(others)}." if others else text

"""What no planner can beat, and what each must: the spread of repeats, and one MFU for each class of runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from statistics import mean, median

from trainingkit.planner.score.rows import Row


def repeat_floor(items: Iterable[tuple[Row, float]]) -> tuple[float, float, int]:
    """Mean error of an oracle that knows the median of each configuration, by source then over sources; the widest
    ratio among repeats; rows that have repeats. Rows without repeats are not in it."""
    groups: dict[tuple[str, ...], list[tuple[Row, float]]] = defaultdict(list)
    for row, seconds in items:
        groups[row.key].append((row, seconds))
    errors: dict[str, list[float]] = defaultdict(list)
    widest, count = 1.0, 0
    for group in groups.values():
        if len(group) > 1:
            times = [seconds for _, seconds in group]
            middle = median(times)
            errors[group[0][0].source] += [abs(middle / t - 1) for t in times]
            widest, count = max(widest, max(times) / min(times)), count + len(group)
    return (mean(mean(e) for e in errors.values()) if errors else 0.0), widest, count


def class_of(row: Row) -> tuple[Hashable, ...]:
    """GPU, precision, recompute."""
    return row.text("gpu"), row.text("precision"), row.text("recompute")


def one_mfu_errors(items: Sequence[tuple[Row, float]]) -> list[tuple[str, float]]:
    """(source, error) with one rate (six flops per parameter and token a second) for each class, fitted in-sample."""
    work = [(row, seconds, flops) for row, seconds in items if (flops := six_nd(row)) is not None]
    rates: dict[tuple[Hashable, ...], list[float]] = defaultdict(list)
    for row, seconds, flops in work:
        rates[class_of(row)].append(flops / seconds)
    middle = {kind: median(found) for kind, found in rates.items()}
    return [(row.source, abs(flops / middle[class_of(row)] / seconds - 1)) for row, seconds, flops in work]


def six_nd(row: Row) -> float | None:
    """Flops of a step on one device, six per (active) parameter and token."""
    params = row.number("params_active_b") or row.number("params_b")
    batch, seq, devices = (row.number(column) for column in ("global_batch", "seq_len", "n_gpus"))
    return 6e9 * params * batch * seq / devices if params and batch and seq and devices else None

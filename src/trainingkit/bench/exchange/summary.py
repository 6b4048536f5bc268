"""From footprints and turns to the shared result. Pure.

flatness               RAM of one rank, or its bytes over those of a ring: the larger ratio of 64 ranks to 4
hierarchical_vs_flat   median over rounds of (flat exchange / hierarchical exchange), the flat one being the shorter of
                       two turns: its own, and that of its twin

In a ring, which sends the least that an all-reduce can, each of N ranks sends 2 (N-1)/N of the values. That factor
grows from 1.5 with 4 ranks to 1.97 with 64, for plain DDP as well; so bytes are compared with those of a ring.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainingkit.bench.exchange.footprint import Footprint
from trainingkit.bench.exchange.spec import BASE_RANKS, FLAT, HIERARCHICAL, MOST_RANKS, SIMULATED, TWIN, Task
from trainingkit.bench.paired import Turns
from trainingkit.bench.result import Check, Result, known, make_check, make_result
from trainingkit.bench.stats import median_interval
from trainingkit.codec.size import granule
from trainingkit.core.units import format_seconds

FLATNESS_GOAL = "<= 1.1"
ISLANDS_GOAL = ">= 1.5"
NOTES = [
    "Simulated ranks are driven by one process: their bytes and buffers are those of real ones, a process group's are "
    "not among them, and nothing is said of time.",
    "RAM is what the exchange adds to the gradients: residuals with their twins (8 bytes a value), messages and sums.",
    "`of ring` is what a rank sends over what it sends in a plain fp32 all-reduce over as many ranks.",
]
TURNS_NOTE = "A turn is one exchange of all buckets, without a model; random values, residuals kept."


@dataclass(frozen=True)
class Figures:
    """What was measured.

    Args:
        footprints: (how, ranks) -> footprints.
        turns: what `turns.take_turns` returns, by JSON; None without a lab.
    """

    footprints: Mapping[tuple[str, int], Sequence[Footprint]]
    turns: Mapping[str, Any] | None


def summarise(task: Task, figures: Figures, facts: Mapping[str, Any], *, command: str) -> Result:
    """The result."""
    rows = [_footprint_row(task, how, ranks, found) for (how, ranks), found in sorted(figures.footprints.items())]
    checks = [_flatness(task, figures)] if _both(figures) else []
    notes = [*NOTES, _padding_note(task)]
    if figures.turns is not None:
        turns = read_turns(figures.turns)
        checks.append(make_check("hierarchical_vs_flat", median_interval(gains(turns)), ISLANDS_GOAL))
        rows += [_turn_row(name, turns, figures.turns["sent_bytes"]) for name in (FLAT, TWIN, HIERARCHICAL)]
        notes += [TURNS_NOTE, _twin_note(turns), _found_note(figures.turns)]
    return make_result("exchange", command=command, checks=checks, rows=rows, facts=dict(facts), notes=notes)


def read_turns(measured: Mapping[str, Any]) -> Turns:
    """The turns from JSON, whose keys are texts."""
    found = measured["turns"]
    seconds = {name: {int(number): s for number, s in of.items()} for name, of in found["seconds"].items()}
    return Turns(seconds, dict(found["failed"]), found["rounds"])


def gains(turns: Turns) -> list[float]:
    """How many times longer the flat exchange takes, by the shorter of its two turns, of each round."""
    flat, twin, levels = (turns.seconds.get(name, {}) for name in (FLAT, TWIN, HIERARCHICAL))
    return [min(flat[number], twin[number]) / levels[number] for number in sorted(levels)]


def flatness_of(task: Task, few: Footprint, many: Footprint) -> float:
    """The larger of two ratios, `MOST_RANKS` to `BASE_RANKS`: RAM, and bytes over those of a ring."""
    ram = many.ram_bytes / few.ram_bytes
    return max(ram, of_ring(task, MOST_RANKS, many) / of_ring(task, BASE_RANKS, few))


def of_ring(task: Task, ranks: int, found: Footprint) -> float:
    """Bytes of a rank over those of a ring that sums fp32."""
    return found.sent_bytes / (2 * (ranks - 1) / ranks * 4 * task.elements)


def _both(figures: Figures) -> bool:
    return {(SIMULATED, BASE_RANKS), (SIMULATED, MOST_RANKS)} <= set(figures.footprints)


def _flatness(task: Task, figures: Figures) -> Check:
    few, many = (figures.footprints[SIMULATED, ranks] for ranks in (BASE_RANKS, MOST_RANKS))
    samples = [flatness_of(task, one, other) for one, other in zip(few, many, strict=True)]
    return make_check("flatness", median_interval(samples), FLATNESS_GOAL)


def _footprint_row(task: Task, how: str, ranks: int, found: Sequence[Footprint]) -> dict[str, Any]:
    sent, ram = (statistics.median(getattr(each, name) for each in found) for name in ("sent_bytes", "ram_bytes"))
    return {
        "ranks": ranks,
        "how": how,
        "sent_mb": sent / 1e6,
        "of_ring": of_ring(task, ranks, Footprint(round(sent), 0)),
        "ram_mb": ram / 1e6,
        "ram_bytes_per_value": ram / task.elements,
        "times": len(found),
    }


def _turn_row(name: str, turns: Turns, sent: Mapping[str, int]) -> dict[str, Any]:
    ratio = turns.kept_share(name, FLAT)
    return {
        "exchange": name,
        "exchange_s": known(turns.median_s(name)),
        "speed_up": known(ratio.value),
        "low": known(ratio.low),
        "high": known(ratio.high),
        "sent_mb": sent[name] / 1e6,
        "times": len(turns.seconds.get(name, {})),
    }


def _padding_note(task: Task) -> str:
    least = MOST_RANKS * granule(task.codec)
    return (
        f"Shards are whole granules: with {MOST_RANKS} ranks a bucket is padded to multiples of {least} values "
        f"({granule(task.codec)} for each rank), so buckets should have ten times as many."
    )


def _twin_note(turns: Turns) -> str:
    found = turns.ratio(TWIN, FLAT)
    return (
        f"The flat exchange against itself shows {found.value:.3f} ({found.low:.3f} to {found.high:.3f}): "
        "behind a shared slow link times vary from turn to turn. So there is no A/A gate here; instead, of the flat "
        "exchange's two turns in a round the shorter one counts."
    )


def _found_note(turns: Mapping[str, Any]) -> str:
    took = format_seconds(turns["probe_s"])
    return f"Measured in the lab within {took}: {turns['reason']}; islands found: {turns['found']}."

"""One rank's part: a few steps without an exchange, each rung's codec on the buckets they show, the link. All ranks
call it together, and all end up with the same facts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist

from trainingkit.bench.advise.coding import Bench, code_seconds
from trainingkit.bench.advise.computing import Computing, Stopwatch, Timed
from trainingkit.bench.advise.exchanging import exchange_stretch, ring_stretch
from trainingkit.bench.advise.facts import Facts
from trainingkit.bench.advise.linking import measure_link
from trainingkit.sync.auto.advice import Situation
from trainingkit.sync.auto.forecast import Link, Load, Window
from trainingkit.sync.auto.ladder import PLAIN, START, Rung
from trainingkit.sync.buckets import Shape
from trainingkit.sync.exempt import squeezed_names

STEPS_S = 6.0
FEWEST_STEPS, MOST_STEPS = 3, 20

Tell = Callable[[str, float], None]
"""tell(part, share done)."""


@dataclass(frozen=True)
class Costs:
    """What does not depend on how quickly a step computes.

    Args:
        loads: of the rungs; code_s in seconds of a processor.
        byte_s: seconds of a processor.
        told: whether the link was told, not measured.
    """

    loads: tuple[Load, ...]
    link: Link
    byte_s: float
    told: bool


def measure(
    watch: Stopwatch, group: dist.ProcessGroup, rungs: Sequence[Rung], *, ranks: int, link: Link | None, tell: Tell
) -> Facts:
    """Measure all that is not known. Collective.

    Args:
        watch: warm.
        group: the ranks that measure.
        ranks: of the job that is asked about; where the link is measured, those that measure.
        link: where it is known; None: it is measured between these ranks.
    """
    tell("computing", 0.0)
    steps = _steps(watch, lambda done: tell("computing", done))
    costs = measure_costs(watch, group, rungs, ranks=ranks, link=link, tell=tell)
    return facts_from(watch, steps, costs, rungs, ranks=ranks)


def measure_costs(
    watch: Stopwatch, group: dist.ProcessGroup, rungs: Sequence[Rung], *, ranks: int, link: Link | None, tell: Tell
) -> Costs:
    """Codecs and link. Collective."""
    bench = Bench.of(rungs, squeezed_names(watch.work.model), ranks)
    shapes, gradients = watch.gradients()
    code_s = _code_s(bench, shapes, gradients, group, tell)
    tell("link", 0.0)
    several = dist.get_world_size(group) > 1
    found, byte_s = measure_link(group) if several else (link, 0.0)
    known = link or found
    assert known is not None
    loads = [replace(load, code_s=s) for load, s in zip(bench.loads(shapes), code_s, strict=True)]
    if link is None:
        tell("exchange", 0.0)
        loads = _stretched(loads, rungs, shapes, known, group)
    return Costs(tuple(loads), known, byte_s, link is not None)


def _stretched(
    loads: Sequence[Load], rungs: Sequence[Rung], shapes: Sequence[Shape], link: Link, group: dist.ProcessGroup
) -> list[Load]:
    """Loads with how well they fill the link: plain as it is, all codecs as `START` does."""
    start = next(load for load, rung in zip(loads, rungs, strict=True) if rung.codec == START)
    ring = ring_stretch(group, link, elements=[sum(shape.sizes.values()) for shape in shapes])
    exchange = exchange_stretch(group, link, sent_bytes=start.sent_bytes, buckets=len(shapes))
    return [
        replace(load, stretch=ring if rung.codec == PLAIN else exchange)
        for load, rung in zip(loads, rungs, strict=True)
    ]


def facts_from(watch: Stopwatch, steps: Sequence[Timed], costs: Costs, rungs: Sequence[Rung], *, ranks: int) -> Facts:
    """All of it together. On a host whose threads share cores, a second of a processor takes longer. Collective."""
    found = watch.computing(steps)
    loads = [replace(load, code_s=found.crowding * load.code_s, ready=found.ready) for load in costs.loads]
    window = Window(found.compute_s, found.hide_s, 1.0, found.crowding * costs.byte_s)
    situation = Situation(ranks, costs.link, window, found.rest_s, tuple(loads), tuple(rungs))
    return Facts(situation, _notes(watch, found, costs))


def _notes(watch: Stopwatch, computing: Computing, costs: Costs) -> dict[str, Any]:
    here = dist.get_world_size(watch.group)
    return {
        "parameters": sum(p.numel() for p in watch.work.model.parameters()),
        "buckets": len(computing.ready),
        "threads": torch.get_num_threads(),
        "compute": watch.work.compute,
        "crowding": computing.crowding,
        "link": "told" if costs.told else f"measured between {here} ranks",
        "measured_on": here,
    }


def _steps(watch: Stopwatch, told: Callable[[float], None]) -> list[Timed]:
    """As many steps as fit into `STEPS_S`, as many on all ranks."""
    steps: list[Timed] = []
    spent_s = 0.0
    while len(steps) < MOST_STEPS and (len(steps) < FEWEST_STEPS or spent_s < STEPS_S):
        begin = time.perf_counter()
        steps.append(watch.step())
        spent_s = watch.most(spent_s + time.perf_counter() - begin)[0]
        told(min(1.0, max(spent_s / STEPS_S, len(steps) / MOST_STEPS)))
    return steps


def _code_s(
    bench: Bench, shapes: Sequence[Shape], gradients: Sequence[torch.Tensor], group: dist.ProcessGroup, tell: Tell
) -> list[float]:
    """Processor seconds of each rung, on all ranks at the same time; the mean over ranks."""

    def told(rung: Rung) -> None:
        dist.barrier(group=group)
        tell("codecs", bench.rungs.index(rung) / len(bench.rungs))

    seconds = torch.tensor(code_seconds(bench, shapes, gradients, told), dtype=torch.float64)
    dist.all_reduce(seconds, group=group)
    return (seconds / dist.get_world_size(group)).tolist()

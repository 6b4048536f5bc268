"""Why does the winner win? Each neighbour of a plan, one choice away, with what it would lose, or why it cannot be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from trainingkit.core.units import format_bytes, format_seconds
from trainingkit.planner.cost.step import StepTime
from trainingkit.planner.layout import Layout
from trainingkit.planner.memory import peak_memory
from trainingkit.planner.models import Transformer
from trainingkit.planner.schedule import SCHEDULES
from trainingkit.planner.schedule.registry import Shape
from trainingkit.planner.search.plan import Plan
from trainingkit.planner.search.search import Found, timed_plan
from trainingkit.planner.search.space import RULES

PARTS = {
    "busy_s": "work",
    "bubble_s": "waiting for other stages",
    "exchange_s": "exchange among replicas",
    "update_s": "the update",
    "straggle_s": "the slowest device",
}


@dataclass(frozen=True)
class Neighbour:
    """One choice away from the winner. `lost` is its share of time lost, None where it cannot run."""

    change: str
    lost: float | None
    why: str


def neighbours(plan: Plan) -> list[Neighbour]:
    """All plans one choice away, those that lose least first, then those that cannot run."""
    found = [_judge(plan, change, layout) for change, layout in _one_away(plan)]
    return sorted(found, key=lambda n: (n.lost is None, n.lost or 0.0))


def _one_away(plan: Plan) -> Iterator[tuple[str, Layout]]:
    one = plan.layout
    yield from _other_shards(one)
    for micro in {one.micro_batch * 2, max(1, one.micro_batch // 2)} - {one.micro_batch}:
        yield f"micro-batch {micro}", replace(one, micro_batch=micro)
    if plan.job.is_conv:
        return
    for name, other in (("tp", "dp"), ("pp", "dp"), ("tp", "pp"), ("cp", "dp")):
        for first, second in ((name, other), (other, name)):
            if getattr(one, second) % 2 == 0 and not (first == "cp" and one.cp == 1):
                values = {first: getattr(one, first) * 2, second: getattr(one, second) // 2}
                yield f"{first} {values[first]}, {second} {values[second]}", replace(one, **values)
    for again in ("none", "selective", "full"):
        if again != one.recompute:
            yield f"recompute {again}", replace(one, recompute=again)
    if one.tp > 1:
        yield (
            f"sequence parallel {not one.sequence_parallel}",
            replace(one, sequence_parallel=not one.sequence_parallel),
        )
    for schedule, virtual in (("1f1b", 1), ("zb-h1", 1), ("zb-v", 2), ("interleaved", 2)):
        if one.pp > 1 and schedule != one.schedule:
            yield schedule, replace(one, schedule=schedule, virtual=virtual)


def _other_shards(one: Layout) -> Iterator[tuple[str, Layout]]:
    for shard in sorted({0, 1, 2, 3} - {one.shard}) if one.dp * one.cp > 1 else ():
        yield f"shard {shard}", replace(one, shard=shard)


def _judge(plan: Plan, change: str, layout: Layout) -> Neighbour:
    refusal = illegal(plan, layout)
    if refusal:
        return Neighbour(change, None, refusal)
    memory = peak_memory(plan.job, plan.cluster, layout)
    have = plan.cluster.gpu.memory_bytes
    if memory.high > have:
        return Neighbour(change, None, f"does not fit: up to {format_bytes(memory.high)} of {format_bytes(have)}")
    other = timed_plan(plan.job, plan.cluster, layout, memory)
    return Neighbour(change, other.step_s / plan.step_s - 1, _where(plan.time, other.time))


def illegal(plan: Plan, layout: Layout) -> str:
    """The rule that forbids a layout, in words; empty when it may run."""
    job, model = plan.job, plan.job.model
    checks = {
        "batch": job.global_batch % (layout.dp * layout.micro_batch) != 0,
        "tp island": layout.tp > plan.cluster.island,
        "shard pp": layout.shard > 1 and layout.pp > 1,
    }
    if isinstance(model, Transformer):
        checks["tp heads"] = model.heads % layout.tp != 0
        checks["pp layers"] = model.layers < layout.pp * layout.virtual
        checks["ep"] = (layout.dp * layout.cp) % layout.ep != 0
    else:
        checks["pp layers"] = layout.pp > 1 or layout.tp > 1
    shape = Shape(layout.pp, layout.micro_batches(job.global_batch), layout.virtual)
    checks["interleaved"] = layout.pp > 1 and not SCHEDULES.get(layout.schedule).legal(shape)
    return next((RULES[name] for name, broken in checks.items() if broken), "")


def _where(mine: StepTime, other: StepTime) -> str:
    """The part of the step that grew most."""
    grown = {word: getattr(other, name) - getattr(mine, name) for name, word in PARTS.items()}
    word = max(grown, key=lambda w: grown[w])
    return f"{format_seconds(grown[word])} more for {word}" if grown[word] > 0 else "less memory, or the same"


def reasons(found: Found) -> list[str]:
    """Why the winner wins, what it costs, which rules cut what: sentences."""
    plan = found.plans[0]
    time = plan.time
    share = {word: getattr(time, name) / time.step_s for name, word in PARTS.items()}
    spent = ", ".join(f"{value:.0%} {word}" for word, value in share.items() if value >= 0.005)
    text = [f"Of its step: {spent}."]
    text += [alone] if (alone := one_device(plan)) else []
    text.append(
        f"{found.considered:,} layouts are legal; {found.timed:,} had to be timed and {found.too_big:,} of those "
        "looked at do not fit. The rest cannot be better than the last one shown: their lower bound is above it."
    )
    cut = sorted(found.cut.items(), key=lambda item: -item[1])
    text += [f"Cut {count} times: {RULES[name]}." for name, count in cut]
    return text


def one_device(plan: Plan) -> str:
    """What to say where one device could hold the model."""
    layout = Layout(dp=plan.layout.devices, micro_batch=1)
    fits = peak_memory(plan.job, plan.cluster, layout).high <= plan.cluster.gpu.memory_bytes
    if not fits:
        return ""
    if plan.layout.tp == plan.layout.pp == plan.layout.cp == 1:
        return "This model fits one device: use data parallel only."
    return "This model fits one device; data parallel alone would work, and this is faster."

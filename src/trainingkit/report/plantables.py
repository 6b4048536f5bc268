"""Plans as rows of text, for the screen and for their page."""

from __future__ import annotations

from trainingkit.core.units import format_bytes, format_count, format_seconds
from trainingkit.planner import Answer
from trainingkit.planner.search import Plan
from trainingkit.report.tables import Table


def plans_table(answer: Answer, target_tokens: float | None) -> Table:
    """One plan a row, the best first."""
    job, cluster = answer.job, answer.cluster
    columns = ["#", "tp", "pp", "dp", "micro", "schedule", "recompute", "shard", "step", "of peak", "memory of a rank"]
    more = [name for name in ("cp", "ep") if any(getattr(plan.layout, name) > 1 for plan in answer.plans)]
    columns[4:4] = more
    swapped = [name for name in ("codec", "every") if len({getattr(plan.layout, name) for plan in answer.plans}) > 1]
    swapped += ["codec"] if "codec" not in swapped and answer.best.layout.codec != "none" else []
    columns += swapped
    columns += ["days"] if target_tokens else []
    priced = target_tokens and cluster.price_per_gpu_hour is not None
    columns += ["cost"] if priced else []
    rows = tuple(_row(place, plan, more, swapped, target_tokens) for place, plan in enumerate(answer.plans, start=1))
    unit = "images" if job.is_conv else f"samples of {job.seq:,} tokens"
    title = (
        f"{job.model.name} ({format_count(job.model.params())} parameters) on {cluster.nodes} x {cluster.per_node} "
        f"{cluster.gpu.name}, {job.global_batch:,} {unit} a step, {job.precision}"
    )
    return Table(title, tuple(columns), rows, NOTE)


NOTE = (
    "tp, pp, dp: tensor, pipeline, data parallelism; +sp: sequence parallel; shard: 1 states, 2 and gradients, 3 and "
    "parameters. Bars: nine in ten runs lie within; a plan fits when the upper end of its memory does."
)


def _row(place: int, plan: Plan, more: list[str], swapped: list[str], target_tokens: float | None) -> tuple[str, ...]:
    layout = plan.layout
    low, high = plan.bar_s
    schedule = "-" if layout.pp == 1 else layout.schedule + (f" x{layout.virtual}" if layout.virtual > 1 else "")
    cells = [str(place), f"{layout.tp}{'+sp' if layout.sequence_parallel else ''}", str(layout.pp), str(layout.dp)]
    cells += [str(getattr(layout, name)) for name in more]
    cells += [str(layout.micro_batch), schedule, layout.recompute, str(layout.shard)]
    cells.append(f"{format_seconds(plan.step_s)} ({format_seconds(low)} to {format_seconds(high)})")
    cells.append(f"{plan.mfu:.1%}")
    cells.append(f"{format_bytes(plan.memory.total)} (to {format_bytes(plan.memory.high)})")
    cells += [str(getattr(layout, name)) for name in swapped]
    if target_tokens:
        cells.append(f"{plan.days_to(target_tokens):.3g}")
        price = plan.price_to(target_tokens)
        cells += [f"{price:,.0f}"] if price is not None else []
    return tuple(cells)


def neighbours_table(answer: Answer) -> Table:
    """What each plan one choice away would lose."""
    rows = tuple((n.change, "cannot run" if n.lost is None else f"{n.lost:+.1%}", n.why) for n in answer.neighbours())
    return Table("One choice away from the best plan", ("change", "time", "why"), rows)


def memory_table(plan: Plan) -> Table:
    """The parts of the fullest rank's memory."""
    memory = plan.memory
    names = ("weights", "gradients", "states", "activations", "logits", "buffers", "outside")
    rows = tuple((name, format_bytes(getattr(memory, name))) for name in names)
    total = f"{format_bytes(memory.total)}, from {format_bytes(memory.low)} to {format_bytes(memory.high)}"
    note = f"In all {total}; the device has {format_bytes(plan.cluster.gpu.memory_bytes)}."
    return Table("Memory of the fullest rank", ("part", "bytes"), rows, note)

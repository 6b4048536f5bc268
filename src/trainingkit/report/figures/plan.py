"""A plan's pictures: who works when in the pipeline, memory by stage, and where the time of the best plans goes."""

from __future__ import annotations

from typing import Any

from trainingkit.core.units import format_seconds
from trainingkit.planner.memory import stage_memory
from trainingkit.planner.schedule import simulate
from trainingkit.planner.search import Plan
from trainingkit.planner.search.search import sharded_costs
from trainingkit.report.figures.style import Figure, axes, label, numbers

WORK_COLOURS = {"F": "#56b4e9", "B": "#0072b2", "W": "#009e73"}
WORK_NAMES = {"F": "forward", "B": "backward", "W": "backward, weights"}
MEMORY_COLOURS = {
    "weights": "#0072b2",
    "gradients": "#56b4e9",
    "states": "#009e73",
    "activations": "#e69f00",
    "logits": "#f0e442",
    "buffers": "#cc79a7",
    "outside": "#999999",
}
TIME_COLOURS = {
    "busy_s": ("work", "#0072b2"),
    "bubble_s": ("waiting for other stages", "#d55e00"),
    "exchange_s": ("exchange among replicas", "#e69f00"),
    "update_s": ("update", "#cc79a7"),
    "straggle_s": ("slowest device", "#999999"),
}
MOST_MICROS, MOST_STAGES = 16, 16


def timeline(plan: Plan) -> Figure:
    """The pipeline of one step, or its beginning and end where it has many micro-batches."""
    layout = plan.layout
    title = "Who works when"
    if layout.pp == 1:
        empty = "There is no pipeline: every device works on whole samples all the time."
        return Figure("timeline", title, "One stage.", [], empty=empty, height=120)
    all_micros = layout.micro_batches(plan.job.global_batch)
    micros = min(all_micros, max(layout.pp, MOST_MICROS - MOST_MICROS % layout.pp))
    costs = sharded_costs(plan.job, plan.cluster, layout)
    events = [e for e in simulate(layout.schedule, costs, micros) if e.stage < MOST_STAGES]
    data = []
    for kind, name in WORK_NAMES.items():
        mine = [e for e in events if e.work.kind == kind]
        if mine:
            data.append(_bars(kind, name, mine))
    drawn = axes("seconds", "stage") | {"barmode": "overlay", "bargap": 0.15}
    drawn["yaxis"] |= {"autorange": "reversed", "dtick": 1}
    few = "" if micros == all_micros else f" Only {micros} of {all_micros:,} micro-batches are drawn."
    cut = "" if layout.pp <= MOST_STAGES else f" Only {MOST_STAGES} of {layout.pp} stages are drawn."
    caption = f"One bar is one micro-batch in one chunk of layers; white is waiting.{few}{cut}"
    return Figure("timeline", title, caption, data, drawn, height=min(620, 120 + 34 * min(layout.pp, MOST_STAGES)))


def _bars(kind: str, name: str, events: list[Any]) -> dict[str, Any]:
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "y": [e.stage for e in events],
        "base": numbers(e.start_s for e in events),
        "x": numbers(e.end_s - e.start_s for e in events),
        "marker": {"color": WORK_COLOURS[kind], "line": {"width": 0.5, "color": "#ffffff"}},
        "text": [label(f"micro-batch {e.work.micro}, chunk {e.work.chunk}") for e in events],
        "textposition": "none",
        "hovertemplate": "%{text}<br>%{x:.3g} s<extra>" + name + "</extra>",
    }


def memory_by_stage(plan: Plan) -> Figure:
    """Stacked bars of one rank of each stage, and the device's size."""
    stages = list(range(plan.layout.pp))
    found = [stage_memory(plan.job, plan.cluster, plan.layout, stage) for stage in stages]
    data: list[dict[str, Any]] = [
        {
            "type": "bar",
            "name": part,
            "x": stages,
            "y": numbers(getattr(memory, part) / 1e9 for memory in found),
            "marker": {"color": colour, "line": {"width": 0}},
        }
        for part, colour in MEMORY_COLOURS.items()
    ]
    high = {"mode": "markers", "type": "scatter", "name": "upper end", "marker": {"symbol": "line-ew-open", "size": 14}}
    data.append({**high, "x": stages, "y": numbers(memory.high / 1e9 for memory in found)})
    have = plan.cluster.gpu.memory_bytes / 1e9
    line = {"dash": "dash", "color": "#d55e00"}
    edge = {"type": "scatter", "mode": "lines", "name": "the device has", "line": line}
    data.append({**edge, "x": [-0.5, len(stages) - 0.5], "y": [have, have]})
    drawn = axes("stage", "GB of one rank", rangemode="tozero") | {"barmode": "stack", "bargap": 0.2}
    drawn["xaxis"] |= {"tickformat": "d", "range": [-0.5, len(stages) - 0.5]}
    drawn["xaxis"] |= {"dtick": 1} if len(stages) <= MOST_STAGES else {}
    caption = "Early stages hold more micro-batches, the last one the logits. Plans fit by the upper end."
    return Figure("memory", "Memory by stage", caption, data, drawn, height=360)


def parts_of_plans(plans: list[Plan]) -> Figure:
    """Where the time of each of the best plans goes."""
    names = [str(place) for place in range(1, len(plans) + 1)]
    data = [
        {
            "type": "bar",
            "name": word,
            "x": names,
            "y": numbers(getattr(plan.time, part) for plan in plans),
            "marker": {"color": colour, "line": {"width": 0}},
            "text": [label(describe(plan)) for plan in plans],
            "textposition": "none",
            "hovertemplate": "%{text}<br>%{y:.3g} s<extra>" + word + "</extra>",
        }
        for part, (word, colour) in TIME_COLOURS.items()
    ]
    drawn = axes("plan", "seconds a step", rangemode="tozero") | {"barmode": "stack", "bargap": 0.2}
    drawn["xaxis"]["type"] = "category"
    caption = f"The best plan takes {format_seconds(plans[0].step_s)}; hover for the layout."
    return Figure("parts", "Where the time of the best plans goes", caption, data, drawn, height=340)


def describe(plan: Plan) -> str:
    """'tp 4, pp 8, dp 32, micro-batch 2, interleaved x12, recompute none, shard 1'."""
    layout = plan.layout
    virtual = f" x{layout.virtual}" if layout.virtual > 1 else ""
    schedule = f"{layout.schedule}{virtual}, " if layout.pp > 1 else ""
    return (
        f"tp {layout.tp}, pp {layout.pp}, dp {layout.dp}, micro-batch {layout.micro_batch}, {schedule}"
        f"recompute {layout.recompute}, shard {layout.shard}"
    )

"""plan.toml: a plan as text that people and programs read. docs/planner.md has the schema.

Whole numbers, names and true/false only in `[layout]`; figures in `[predicted]` carry their unit in the name.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from trainingkit.planner.cost.stages import dealt
from trainingkit.planner.models import Transformer
from trainingkit.planner.search.plan import Plan

FORMAT = 1


def plan_table(plan: Plan) -> dict[str, Any]:
    """A plan as nested tables of plain values."""
    job, layout, cluster = plan.job, plan.layout, plan.cluster
    low, high = plan.bar_s
    table: dict[str, Any] = {
        "format": FORMAT,
        "runs_with_train": runs_with_train(plan),
        "model": {"name": job.model.name, "parameters": job.model.params()},
        "job": {"sequence": job.seq, "global_batch": job.global_batch, "precision": job.precision},
        "cluster": {"gpu": cluster.gpu.name, "nodes": cluster.nodes, "per_node": cluster.per_node},
        "layout": asdict(layout),
        "predicted": {
            "step_s": plan.step_s,
            "step_low_s": low,
            "step_high_s": high,
            "tokens_per_s": plan.tokens_per_s,
            "share_of_peak": plan.mfu,
            "memory_bytes": int(plan.memory.total),
            "memory_low_bytes": int(plan.memory.low),
            "memory_high_bytes": int(plan.memory.high),
            **{f"time_{name}": value for name, value in asdict(plan.time).items()},
        },
    }
    if isinstance(job.model, Transformer):
        table["layout"]["layers"] = [list(line) for line in dealt(job, layout)]
    return table


def runs_with_train(plan: Plan) -> bool:
    """Whether `trainingkit train` can run it today: replicas only, whole states on each."""
    layout = plan.layout
    return layout.tp == layout.pp == layout.cp == layout.ep == 1 and layout.shard == 0


def train_sentence(plan: Plan) -> str:
    """What `trainingkit train` can do with it."""
    if runs_with_train(plan):
        return "This is plain data parallel: `trainingkit train` runs such a layout today."
    return (
        "`trainingkit train` runs pure data-parallel layouts only, today; take these degrees to a framework with "
        "tensor and pipeline parallelism."
    )

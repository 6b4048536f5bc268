"""Best-first search: layouts in the order of their lower bounds; it ends when no bound is below the K-th best.

The bound of a layout is its step with the pipeline at its lower bound, so the K plans found are exactly the K best of
all legal layouts that fit. Most layouts are never simulated.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from trainingkit.core.errors import ConfigError
from trainingkit.planner.cluster.spec import Cluster
from trainingkit.planner.cost.stages import pipe_costs
from trainingkit.planner.cost.step import assemble, with_sharding
from trainingkit.planner.layout import Job, Layout
from trainingkit.planner.memory.rank import Memory, peak_memory
from trainingkit.planner.schedule import PipeCosts, makespan
from trainingkit.planner.search.bounds import pipe_bound_s
from trainingkit.planner.search.enlarging import too_little_memory
from trainingkit.planner.search.pins import Pins, explain_pins, keeps
from trainingkit.planner.search.plan import Plan, complexity
from trainingkit.planner.search.space import Space, layouts

SHOW_EVERY = 2000


@dataclass(frozen=True)
class Found:
    """What a search found.

    Args:
        plans: the best, in order.
        considered: legal layouts.
        too_big: of those that were looked at, how many do not fit.
        timed: how many were timed in full.
        cut: branches by the rule that cut them (`space.RULES` has the words).
    """

    plans: list[Plan]
    considered: int
    too_big: int
    timed: int
    cut: dict[str, int]


def search(
    job: Job,
    cluster: Cluster,
    space: Space,
    *,
    top: int = 10,
    pins: Pins = (),
    show: Callable[[float], None] | None = None,
) -> Found:
    """The `top` best plans that fit; of those that are as `pins` say, where there are some.

    Raises:
        ConfigError: no layout is legal, or none fits; the message says what would.
    """
    cut: Counter[str] = Counter()
    bounds = _bounds(job, cluster, space, cut, pins, show)
    if not bounds:
        raise (explain_pins(job, cluster, space, pins) if pins else None) or _no_layout(job, cluster, cut, pins)
    best: list[tuple[float, Layout, Plan]] = []
    too_big = timed = 0
    for bound, layout in bounds:
        if len(best) >= top and bound > best[top - 1][0]:
            break
        memory = peak_memory(job, cluster, layout)
        if memory.high > cluster.gpu.memory_bytes:
            too_big += 1
            continue
        timed += 1
        plan = timed_plan(job, cluster, layout, memory)
        insort(best, (plan.merit_s, layout, plan), key=lambda item: item[:2])
        del best[top:]
    if not best:
        raise too_little_memory(job, cluster, space, [layout for _, layout in bounds])
    if show is not None:
        show(1.0)
    return Found(
        [plan for _, _, plan in best],
        len(bounds),
        too_big,
        timed,
        {rule: count for rule, count in cut.items() if count},
    )


def timed_plan(job: Job, cluster: Cluster, layout: Layout, memory: Memory | None = None) -> Plan:
    """One layout in full."""
    costs = sharded_costs(job, cluster, layout)
    micros = layout.micro_batches(job.global_batch)
    pipe_s = max(makespan(layout.schedule, costs, micros), pipe_bound_s(layout.schedule, costs, micros))
    time = assemble(job, cluster, layout, costs, pipe_s)
    return Plan(job, cluster, layout, time, memory or peak_memory(job, cluster, layout))


def bound_s(job: Job, cluster: Cluster, layout: Layout) -> float:
    """No plan with this layout has more merit (`Plan.merit_s`)."""
    costs = sharded_costs(job, cluster, layout)
    pipe_s = pipe_bound_s(layout.schedule, costs, layout.micro_batches(job.global_batch))
    return assemble(job, cluster, layout, costs, pipe_s).step_s * complexity(layout)


def sharded_costs(job: Job, cluster: Cluster, layout: Layout) -> PipeCosts:
    """Costs of the pipeline; layouts that differ in what a pipeline does not see share them."""
    return with_sharding(job, cluster, layout, _costs(_Key(job, cluster, layout)))


class _Key:
    """Job, cluster and what of a layout decides about its pipeline's costs. Hashes job and cluster by identity."""

    def __init__(self, job: Job, cluster: Cluster, layout: Layout) -> None:
        self.job, self.cluster, self.layout = job, cluster, layout
        seen = (layout.tp, layout.pp, layout.cp, layout.ep, layout.micro_batch, layout.schedule)
        self.key = (id(job), id(cluster), layout.dp, *seen, layout.virtual, layout.recompute, layout.sequence_parallel)

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self.key == other.key


@lru_cache(maxsize=100_000)
def _costs(key: _Key) -> PipeCosts:
    return pipe_costs(key.job, key.cluster, key.layout)


def _bounds(
    job: Job,
    cluster: Cluster,
    space: Space,
    cut: Counter[str],
    pins: Pins,
    show: Callable[[float], None] | None,
) -> list[tuple[float, Layout]]:
    found = []
    for place, layout in enumerate(layouts(job, cluster, space, cut)):
        if keeps(pins, layout):
            found.append((bound_s(job, cluster, layout), layout))
        if show is not None and place % SHOW_EVERY == 0:
            show(place / (place + 10 * SHOW_EVERY))
    found.sort()
    return found


def _no_layout(job: Job, cluster: Cluster, cut: Counter[str], pins: Pins) -> ConfigError:
    if pins:
        return ConfigError(
            "Each of these is possible, but not together.",
            field="--fix",
            found=", ".join(f"{name}={value}" for name, value in pins),
            expected=f"degrees whose product is the {cluster.devices} devices, and a batch that they divide",
            next_step="Fix one of them less.",
        )
    near = max(d for d in range(1, job.global_batch + 1) if job.global_batch % d == 0 and d <= cluster.devices)
    rounded = -(-job.global_batch // cluster.devices) * cluster.devices
    return ConfigError(
        "No layout is possible with this batch and so many devices.",
        field="--global-batch",
        found=f"{job.global_batch} samples on {cluster.devices} devices; cut by: {', '.join(sorted(cut)) or 'nothing'}",
        expected="a batch that can be dealt evenly to the replicas",
        next_step=f"Use --global-batch {rounded}, or {near} devices.",
    )
